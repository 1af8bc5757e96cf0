"""Trainings that start in a third of the time: what takes long to import is imported once for all of them.

For CPUs alone, where imports take longer than a small training.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from primus_verify import warm_client
from primus_verify.lifeline import ending_with_parent
from primus_verify.warm_client import OFFERS
from primus_verify.warm_server import read_message

__all__ = ["OF_TORCHRUN", "WarmPython"]

_LONGEST = 80
"""A folder with a longer name has no room for sockets (108 bytes): then every program starts as usual."""
_OFFERS = 256
"""How many programs may send their environment between two trainings."""
OF_TORCHRUN = ("torch.distributed.launcher.api",)
_PRIMUS = """
import runpy, sys
sys.executable = sys.argv.pop(1)
runpy.run_module("primus_core", run_name="__main__", alter_sys=True)
"""
"""`python -m primus_core`, which starts its ranks with another Python."""


class WarmPython:
    """An interpreter whose programs are forks of servers, one for each environment that was seen."""

    def __init__(self, packages: Mapping[str, Sequence[str]]) -> None:
        """`packages`: what each program imports."""
        self.packages = packages
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="primus-")  # paths of sockets must be short
        self.path = os.path.join(self._folder.name, "python")
        words = [sys.executable, "-IS", warm_client.__file__, self._folder.name, sys.executable]
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        os.chmod(self.path, 0o700)
        self._offers = socket.socket(socket.AF_UNIX)
        if len(os.fsencode(self._folder.name)) < _LONGEST:
            self._offers.bind(os.path.join(self._folder.name, OFFERS))
            self._offers.listen(_OFFERS)
            self._offers.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.kill()
            server.wait()
        self._offers.close()
        self._folder.cleanup()

    def primus(self) -> list[str]:
        """Return the words of `primus`."""
        return [sys.executable, "-P", "-c", _PRIMUS, self.path]

    def prepare(self) -> None:
        """Start a server for each environment that programs were started with since the last time."""
        for seen in self._offered():
            if (key := seen["key"]) not in self._servers:
                packages = self.packages[seen["module"]]
                self._servers[key] = self._serve(os.path.join(self._folder.name, key), packages, seen["environ"])

    def _offered(self) -> Iterator[dict[str, Any]]:
        """What programs have sent since the last time; those that could not start as usual again."""
        with suppress(OSError):  # no more wait, or the folder's name is too long
            while True:
                client, _ = self._offers.accept()
                with client:
                    _, files, _, _ = socket.recv_fds(client, 1, 1)
                    yield from map(read_message, files)

    @staticmethod
    def _serve(address: str, packages: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(64)  # from now on programs wait for the server, and never start beside it
            number = listener.fileno()
            words = [sys.executable, "-P", "-m", "primus_verify.warm_server", str(number), *packages]
            return subprocess.Popen(
                ending_with_parent(words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, env=dict(environ), pass_fds=[number],
            )  # fmt: skip
