"""Imports packages once, and runs programs in forks of itself, for `warm_client`.

    python -m primus_verify.warm_server NUMBER PACKAGE ...

NUMBER is the file descriptor of a socket that listens.

A fork is like the process that `python -m MODULE` starts: with the client's environment, folder and output. It differs
in this: a package that the server imported is not imported again. A program ends with its client, and all with the
server's parent.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

__all__ = ["main", "read_message"]


def main(number: str, *packages: str) -> Callable[[], object]:
    """Serve until a signal ends it. In a fork: return what is to be run."""
    listener = socket.socket(fileno=int(number))  # clients wait while packages are imported
    for package in packages:
        with suppress(ImportError):
            importlib.import_module(package)
    gc.collect()
    gc.freeze()  # or each fork copies the pages of all these modules when it collects them
    clients: dict[int, socket.socket] = {}
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken)
    while True:
        watched: list[Any] = [listener, wake, *clients.values()]
        ready, _, _ = select.select(watched, [], [])
        if wake in ready:
            os.read(wake, 4096)
        _tell_ends(clients)
        for pid in [pid for pid, client in clients.items() if client in ready]:
            _kill(pid)  # its client has ended
        if listener in ready:
            client, _ = listener.accept()
            message, files, _, _ = socket.recv_fds(client, 1, 4)
            if not message:
                continue
            if not (pid := os.fork()):
                signal.set_wakeup_fd(-1)
                os.close(wake)
                os.close(woken)
                for other in (listener, client, *clients.values()):
                    other.close()
                return _become(files[0], files[1:])
            for file in files:
                os.close(file)
            client.sendall(f"{pid}\n".encode())
            clients[pid] = client


def _tell_ends(clients: dict[int, socket.socket]) -> None:
    """Tell clients whose programs have ended."""
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            client = clients.pop(found[0])
            with suppress(OSError):
                client.sendall(f"{os.waitstatus_to_exitcode(found[1])}\n".encode())
            client.close()


def read_message(number: int) -> Any:
    """Return what a file in memory has as JSON, and close it."""
    with open(number, encoding="utf-8") as file:
        file.seek(0)  # the sender has written it, and the place is shared
        return json.load(file)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _become(content: int, files: Sequence[int]) -> Callable[[], object]:
    """Be as if Python had just been started with the request; return what is left to do."""
    from primus_machine.processes import end_with_parent

    request: dict[str, Any] = read_message(content)
    os.setsid()
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for wanted, file_number in enumerate(files):
        os.dup2(file_number, wanted)
        os.close(file_number)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    sys.path.insert(0, request["cwd"])
    sys.argv[:] = [request["module"], *request["argv"]]
    importlib.invalidate_caches()

    def run() -> object:
        return runpy.run_module(request["module"], run_name="__main__", alter_sys=True)

    return run


if __name__ == "__main__":
    main(*sys.argv[1:])()
