"""One part of a suite as a program: runs the worker of a benchmark, and says in a file why it failed.

python -m primus_bench.benchmarks.suite.part REASON_FILE MODULE [ARGS]
"""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Sequence

from primus_core.errors import PrimusError

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Run `argv[1]` with the rest as its arguments; its exit code."""
    reason, module, *_ = argv
    sys.argv = list(argv[1:])
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except PrimusError as error:
        _tell(reason, f"primus: error: {error}\n", f"{error.what}: {error.why}" if error.why else error.what)
        return error.exit_code
    except Exception as error:  # whatever a benchmark of others raises is shown, and hides none of the other benchmarks
        _tell(reason, traceback.format_exc(), f"{type(error).__name__}: {error}")
        return 1
    return 0


def _tell(path: str, shown: str, kept: str) -> None:
    sys.stderr.write(shown)
    with open(path, "w", encoding="utf-8") as file:
        file.write(" ".join(kept.split()))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
