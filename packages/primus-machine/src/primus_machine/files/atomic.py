"""Files appear whole or not at all, and none is written or read through a stranger's link."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress

__all__ = [
    "FULL",
    "OTHERS_WRITE",
    "PRIVATE",
    "PRIVATE_FOLDER",
    "append_line",
    "create",
    "create_whole",
    "is_own_link",
    "link_atomically",
    "open_to_append",
    "read_below",
    "read_regular",
    "regular",
    "staged",
    "write_atomically",
]

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a file system, or of a person's share of it, that takes no more."""
PRIVATE, PRIVATE_FOLDER = 0o600, 0o700
"""The modes of what holds a person's environment or code."""
OTHERS_WRITE = 0o022
"""The bits of a file's mode by which others may change it."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST = 1 << 26
_IN_THE_MIDDLE_S = 0.01
"""How long another process may stay in the middle of writing a line."""


def staged(path: str) -> str:
    """Where to write what will be `path`: of this process alone, and a name that nobody can have prepared."""
    return f"{path}.{os.uname().nodename}.{os.getpid()}.{os.urandom(4).hex()}.partial"


def create(path: str, flags: int = _NEW, mode: int = 0o666) -> int:
    """For `open(..., opener=create)`: a new file; what is there already, a link too, is an error."""
    del flags  # `open` would cut off what is there
    return os.open(path, _NEW, mode)


def is_own_link(path: str) -> bool:
    """Whether a symbolic link lies there, and the person or root made it and all that it leads through."""
    from primus_machine.files.trust import links  # a link is rare

    try:
        target = os.path.join(os.path.realpath(os.path.dirname(path)), os.readlink(path))
        return all(os.lstat(link).st_uid in (0, os.geteuid()) for link in (path, *links(target)))
    except OSError:  # it is none
        return False


def append_line(path: str, line: str) -> None:
    """Add a line in one write: a killed process leaves whole lines only, and no two mix. Behind a line that a full disk
    cut short, a new one begins.

    Raises:
        OSError: it is no regular file, or cannot be written whole.
    """
    descriptor = open_to_append(path, access=os.O_RDWR)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        data = b"\n" * _is_torn(descriptor) + f"{line}\n".encode()
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(descriptor)


def _is_torn(descriptor: int) -> bool:
    """Whether the last line has no end, and nobody is writing it.

    A file grows page by page: what looks torn may be another's line, half of which can be read already.
    """
    seen = -1
    while (size := os.fstat(descriptor).st_size) != seen:
        if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
            return False
        seen = size
        time.sleep(_IN_THE_MIDDLE_S)
    return True


def open_to_append(path: str, mode: int = 0o644, *, access: int = os.O_WRONLY) -> int:
    """The descriptor of a file to append to. A link is followed if the person or root made it; no FIFO is waited for.

    Raises:
        OSError: it cannot be opened.
    """
    flags = access | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW, mode)
    except OSError as error:
        if error.errno != errno.ELOOP or not is_own_link(path):
            raise
        descriptor = os.open(path, flags, mode)
    os.set_blocking(descriptor, True)
    return descriptor


def regular(path: str, flags: int) -> int:
    """For `open(..., opener=regular)`: a file of a run directory, whoever owns that: no FIFO is waited for, and no link
    is followed that neither the person nor root made.

    Raises:
        OSError: it is such a link, or no regular file.
    """
    flags |= os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        if not is_own_link(path):
            raise OSError(errno.ELOOP, "it is a link of another user", path) from None
        descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return descriptor


def read_regular(path: str, limit: int = _MOST, *, folder: int | None = None) -> bytes:
    """What a file says, at most `limit` bytes. Without the layers of `open`, which a list of thousands would feel.

    Raises:
        OSError: it cannot be read, or it is a link or no regular file, whoever put it there.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        parts = [os.read(descriptor, min(1 << 16, limit))]
        while parts[-1] and (limit := limit - len(parts[-1])):
            parts.append(os.read(descriptor, min(1 << 16, limit)))
    finally:
        os.close(descriptor)
    return b"".join(parts)


def read_below(folder: str, path: str, limit: int = _MOST) -> bytes:
    """The same for a `path` in a folder of somebody else's, which may hold links that lead out of it.

    Raises:
        OSError: it cannot be read, is not a regular file, or a part of its path is a link.
    """
    *parts, name = path.split("/")
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags & ~os.O_NOFOLLOW)
    try:
        for part in parts:
            above, descriptor = descriptor, os.open(part, flags, dir_fd=descriptor)
            os.close(above)
        return read_regular(name, limit, folder=descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: str, text: str, *, durable: bool = True, mode: int = 0) -> None:
    """Write `text` to `path`: staged beside it, flushed to disk (if `durable`), renamed: the old file or the new.

    Without a `mode` it has that of every new file.
    """
    stage = staged(path)
    try:
        with open(stage, "w", encoding="utf-8", errors="surrogateescape", newline="", opener=create) as file:
            if mode:
                os.fchmod(file.fileno(), mode)
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(stage, path)
    except BaseException:  # Ctrl-C, too: no staged file is left behind
        with suppress(OSError):
            os.unlink(stage)
        raise


def create_whole(path: str, text: str) -> bool:
    """Create the file with this text, if no other process has. A hard link is exclusive on NFS, too."""
    stage = staged(path)
    with open(stage, "w", encoding="utf-8", errors="surrogateescape", opener=create) as file:
        file.write(text)
    try:
        os.link(stage, path)
    except FileExistsError:
        return False
    except OSError:  # the answer of a server got lost, or the file system has no links
        return os.stat(stage).st_nlink == 2 or _create_plainly(path, text)
    finally:
        os.unlink(stage)
    return True


def _create_plainly(path: str, text: str) -> bool:
    try:
        with open(path, "w", encoding="utf-8", errors="surrogateescape", opener=create) as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def link_atomically(target: str, path: str) -> bool:
    """Point the symbolic link `path` at `target`. False: something that is no link, or not ours, stays there."""
    if os.path.lexists(path) and not os.path.islink(path):
        return False
    stage = staged(path)
    os.symlink(target, stage)
    try:
        os.replace(stage, path)
    except PermissionError:  # in a sticky folder, another user has put something there
        os.unlink(stage)
        return False
    return True
