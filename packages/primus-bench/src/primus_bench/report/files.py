"""Files of results: made before the measuring, replaced as a whole after it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from primus_core.errors import MachineError, RequestError
from primus_machine.files.atomic import create, is_own_link, open_to_append, staged
from primus_machine.host import HostRoot
from primus_machine.secrets.redaction import redact, secret_values

__all__ = ["Forms", "alone", "prepare", "write", "write_text"]

Forms = Mapping[str, Callable[[], str]]
"""What makes the text, by the suffix of the file."""


def prepare(paths: Sequence[str], option: str = "--output") -> None:
    """Make sure that each path can be written, before the measuring and not after it.

    Raises:
        MachineError: a folder cannot be made or written, or the path is no file; `option` chooses another.
    """
    for path in paths:
        folder = os.path.dirname(os.path.abspath(path))
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise _unwritable(path, error.strerror, option) from None
        if os.path.isdir(path):
            raise _unwritable(path, "it is a folder", option)
        if os.path.exists(path) and not os.path.isfile(path):  # root would put a file in the place of a device
            raise _unwritable(path, "it is not a regular file", option)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _unwritable(path, f"{folder} is not writable", option)


@contextlib.contextmanager
def alone(folder: str, what: str, option: str) -> Iterator[None]:
    """Be the only process that writes to a folder. The lock of a killed process is gone with it.

    Raises:
        RequestError: `what` does it already; `option` chooses another folder.
        MachineError: the folder cannot be written.
    """
    path = os.path.join(folder, "lock")
    prepare([path], option)
    try:
        lock = open_to_append(path)
    except OSError as error:
        raise _unwritable(path, error.strerror, option) from None
    with open(lock, "a", encoding="ascii"):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fix = f"wait for it, stop it, or choose another {option}"
            raise RequestError(f"{what} {folder}", fix=fix) from None
        yield


def write(path: str, forms: Forms) -> None:
    """Write the result in the form that the suffix names.

    Raises:
        MachineError: it cannot be written.
    """
    write_text(path, forms[os.path.splitext(path)[1].lower()]())


def write_text(path: str, text: str) -> None:
    """Write `text` without its secrets. A reader sees the old file or the whole new one.

    Raises:
        MachineError: it cannot be written.
    """
    target = os.path.realpath(path) if is_own_link(path) else path
    stage = staged(target)
    public = redact(text, secret_values(HostRoot().environ))
    try:
        with open(stage, "w", encoding="utf-8", errors="backslashreplace", newline="", opener=create) as file:
            file.write(public)
            file.flush()
            os.fsync(file.fileno())
        os.replace(stage, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(stage)
        raise _unwritable(path, error.strerror) from None


def _unwritable(path: str, why: str | None, option: str = "--output") -> MachineError:
    return MachineError(f"cannot write {path}", why=why or "", fix=f"choose another {option}")
