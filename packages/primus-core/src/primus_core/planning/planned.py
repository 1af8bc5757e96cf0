"""A plan, and what it was made from."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from primus_core.machine.facts import Facts
from primus_core.plan.plan import Plan

if TYPE_CHECKING:
    from primus_core.runs.replay import Replay

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
    inner: Planned | None = None
    """Of an outer layer: what the layer inside would do here."""
