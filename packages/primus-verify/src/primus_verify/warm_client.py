"""Stands for the Python of a training: a program that takes long to import runs in a fork of a `warm_server`.

    python -I warm_client.py FOLDER PYTHON [-u] -m MODULE ...

Each environment needs a server of its own, since packages read it when they are imported. The first program in an
environment starts as usual, and sends the environment to `warm.WarmPython`. An environment has secrets: it goes through
memory, and never into a file. It has no imports but light ones: every rank pays for them.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
from contextlib import suppress

TORCHRUN = "primus_core.programs.torchrun"
RANK = "primus_core.programs.rank"
OFFERS = "offers"
"""The socket that takes environments, in FOLDER."""
_OF_A_RANK = ("PRIMUS_", "TORCHELASTIC_", "ROLE_", "GROUP_")
_NAMES = ("RANK", "LOCAL_RANK", "MASTER_PORT", "PYTHON_EXEC")
"""Variables that differ between ranks or runs, and that no package reads when it is imported."""
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)


def main(folder: str, python: str, *words: str) -> None:
    """Become the program, or wait for it in a server's fork and end as it does."""
    module, *rest = words[words.index("-m") + 1 :] if "-m" in words[:2] else ("",)
    if module not in (TORCHRUN, RANK):
        os.execv(python, [python, *words])
    environ = {**os.environ, "PYTHON_EXEC": os.path.join(folder, "python")}  # torchrun starts its ranks with it
    lasting = {name: value for name, value in environ.items()
               if not name.startswith(_OF_A_RANK) and name not in _NAMES}  # fmt: skip
    key = hashlib.sha256(json.dumps([module, sorted(lasting.items())]).encode()).hexdigest()[:16]
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(os.path.join(folder, key))
        except OSError:
            _offer(os.path.join(folder, OFFERS), {"key": key, "module": module, "environ": environ})
            os.execve(python, [python, *words], environ)
        _end_as(server, {"module": module, "argv": rest, "cwd": os.getcwd(), "environ": environ})


def _in_memory(found: object) -> int:
    """Return the descriptor of a file in memory that has this as JSON."""
    number = os.memfd_create("primus")
    with open(number, "w", encoding="utf-8", closefd=False) as file:
        json.dump(found, file)
    return number


def _offer(path: str, found: object) -> None:
    """Send it, unless nobody listens or too many have: then the next program starts as usual, too."""
    with socket.socket(socket.AF_UNIX) as listener, suppress(OSError):
        listener.setblocking(False)
        listener.connect(path)
        socket.send_fds(listener, [b"1"], [_in_memory(found)])


def _end_as(server: socket.socket, request: object) -> None:
    content = _in_memory(request)
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # until there is a process that gets them
    socket.send_fds(server, [b"1"], [content, 0, 1, 2])
    os.close(content)
    answers = server.makefile()
    child = int(answers.readline() or 0)
    if not child:
        sys.exit("the process that was to run this program has ended")

    def forward(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    code = int(answers.readline() or -signal.SIGKILL)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
