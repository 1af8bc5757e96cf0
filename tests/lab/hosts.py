"""Two machines on this one: network namespaces with a cable between them, each with an address of its own."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

__all__ = ["ADDRESSES", "hosts"]

ADDRESSES = ("10.83.0.1", "10.83.0.2")


@contextmanager
def hosts() -> Iterator[Sequence[str]]:
    """Their namespaces, for `ip netns exec`. Needs root."""
    names = [f"primus-{uuid.uuid4().hex[:8]}-{at}" for at in range(2)]
    try:
        for name in names:
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, env={**os.environ, "PATH": _path(os.environ)})


def _path(environ: Mapping[str, str]) -> str:
    return f"{environ.get('PATH', '')}:/usr/sbin:/sbin"
