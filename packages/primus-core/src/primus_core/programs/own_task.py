"""Runs a task of a person's own file: the worker of `@register_task`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from primus_core.plugins.dropped_in import WorkerCall, load
from primus_machine import variables

__all__: list[str] = []


def _main(words: Sequence[str]) -> int:
    """Worker: `python -m primus_core.programs.rank primus_core.programs.own_task FILE TASK [WORDS]`."""
    path, name, *rest = words
    if sys.path[0] in ("", os.getcwd()):  # as where the run was planned: a folder here hides no installed package
        sys.path.append(sys.path.pop(0))
    environ: dict[str, Any] = dict(os.environ)
    call = WorkerCall(
        words=tuple(rest),
        rank=int(environ.get("RANK", 0)),
        world_size=int(environ.get("WORLD_SIZE", 1)),
        run_dir=environ.get(variables.RUN_DIR, ""),
    )
    return load(path)[name].function(call) or 0


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
