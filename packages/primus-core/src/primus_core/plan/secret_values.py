"""The secrets of a plan: what must not appear anywhere when it is shown, saved or run."""

from __future__ import annotations

from collections.abc import Mapping

from primus_core.plan.plan import Plan
from primus_machine.secrets.redaction import secret_values

__all__ = ["values_in"]


def values_in(plan: Plan, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values that must not appear anywhere when `plan` is shown, saved or run in `environ`."""
    own = {variable.name: variable.value for variable in plan.environment}
    marked = {f"{index}_SECRET": v.value for index, v in enumerate(plan.environment) if v.secret}
    return secret_values({**environ, **own, **marked})
