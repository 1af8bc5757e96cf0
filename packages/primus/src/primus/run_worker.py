"""The worker of the task `run`: `python -m primus.run_worker FILE [words]` is `python FILE [words]`, except that
no modules come from the folder of the file if others can put some there, and that the file must still be trusted.
"""

from __future__ import annotations

import os
import runpy
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType

from primus_machine.files import trust
from primus_machine.host import HostRoot

_NO_TEXT = (".pyc", ".pyz", ".zip")


class _Loader(SourceFileLoader):
    """Runs what was looked at: since the run was planned, others may have put another file in its place."""

    def get_code(self, fullname: str) -> CodeType:
        with open(self.path, "rb", opener=trust.of(HostRoot().environ).opener) as file:
            return compile(file.read(), self.path, "exec", dont_inherit=True)


def _run(path: str) -> None:
    believed, folder = trust.of(HostRoot().environ), os.path.dirname(os.path.abspath(path))
    if not sys.flags.safe_path:
        del sys.path[0]
    if not believed.doubt(folder):
        sys.path.insert(0, folder)
    if path.endswith(_NO_TEXT):
        believed.require(path)
        runpy.run_path(path, run_name="__main__")
        return
    main = ModuleType("__main__")
    main.__file__, main.__loader__ = path, _Loader("__main__", path)
    sys.modules["__main__"] = main  # a pickle, or a process that the file starts, looks there
    main.__loader__.exec_module(main)


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    _run(sys.argv[0])
