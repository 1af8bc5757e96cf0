"""`--dry-run`: the plans of all layers, as a script or as JSON, without secrets. Nothing is started."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from primus_core import requirements
from primus_core.plan.secret_values import values_in
from primus_core.planning.planned import Planned
from primus_machine.secrets.redaction import redact
from primus_machine.text import printable

__all__ = ["show"]


def show(planned: Planned, environ: Mapping[str, str]) -> int:
    """Print the plans of all layers; the exit code."""
    if not planned.inner and planned.facts.host.is_here:
        requirements.check_plan(planned.plan, environ, installed=False)
    as_json = planned.switches.json
    plans = [planned.plan]
    while planned.inner:
        planned = planned.inner
        plans.append(planned.plan)
    if as_json:
        import json

        outer, *inner = [plan.to_dict() for plan in plans]
        text = json.dumps({**outer, "inner_plans": inner} if inner else outer, indent=1) + "\n"
    else:
        from primus_core.plan.show import script

        text = script(*plans)
    text = redact(text, [value for plan in plans for value in values_in(plan, environ)])
    sys.stdout.write(printable(text, "\n\t") if sys.stdout.isatty() else text)  # a shell needs every byte
    return 0
