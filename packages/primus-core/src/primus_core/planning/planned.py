"""A plan, and what it was made from."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from primus_core.plan.plan import Plan
from primus_machine.facts import Facts

if TYPE_CHECKING:
    from primus_core.replay.prepare import Replay

__all__ = ["Planned"]


class Planned(NamedTuple):
    """A plan, what it was made from, and the switches of the command line that are not part of it."""

    plan: Plan
    facts: Facts
    switches: argparse.Namespace
    """`dry_run`, `json`, `debug`, `assume_host` of the runtime; `check` and `force` of a replay."""
    replay: Replay | None = None
    reads: tuple[str, ...] = ()
    """The files that were read for it, and those that it needs: whoever plans it again must see them."""
    inputs: tuple[str, ...] = ()
    """Those of them that it was made from: whoever plans it again from the same gets the same."""
    hook_folders: tuple[str, ...] = ()
    """Where hooks were looked for."""
    writes: tuple[str, ...] = ()
    """The folders that it writes in, beside the run directory."""
    takes_over: bool = False
    """As the task says it: `TaskPlan.takes_over`."""
    inner: Planned | None = None
    """Of an outer layer: what the layer inside would do here."""

    @property
    def innermost(self) -> Planned:
        """What is planned for the ranks."""
        return self.inner.innermost if self.inner else self

    @property
    def around(self) -> tuple[str, ...]:
        """The runtimes around the ranks' own, the outermost first."""
        return (self.plan.runtime, *self.inner.around) if self.inner else ()
