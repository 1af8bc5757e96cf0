"""The worker of the task `run`: `python -m primus.run_worker FILE [words]` is `python FILE [words]`."""

from __future__ import annotations

import os
import runpy
import sys

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")
