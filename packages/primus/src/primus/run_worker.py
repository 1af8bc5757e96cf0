"""The worker of the task `run`: `python -m primus.run_worker FILE [words]` is `python FILE [words]`, except that
no modules come from the folder of the file if others can put some there.
"""

from __future__ import annotations

import os
import runpy
import sys

from primus_core.files import trust
from primus_core.host import HostRoot

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    if not sys.flags.safe_path:
        del sys.path[0]
    if not trust.of(HostRoot().environ).doubt(folder):
        sys.path.insert(0, folder)
    runpy.run_path(sys.argv[0], run_name="__main__")
