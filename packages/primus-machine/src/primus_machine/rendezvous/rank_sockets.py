"""Whether ranks will reach each other: each node listens on the interfaces that its ranks will use, and is called.

That nodes meet at MASTER_PORT proves little: Gloo and NCCL listen at other ports, on the interface of a variable.
Each node calls the next one, and the last one node 0, so that each is called once.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from primus_machine.collectives import ROUTE_VARIABLES

__all__ = ["FIX", "IPV6_ADDRESSES", "RankSockets", "Target", "call_all"]

FIX = (
    f"set {ROUTE_VARIABLES[0]} (and {ROUTE_VARIABLES[1]} with GPUs) on each node to the interface that leads to the "
    "other nodes, and let the firewall pass all ports between them; to start without this check: --rendezvous-timeout 0"
)
_CALL_S, _PATIENCE_S, _PAUSE_S = 3.0, 9.0, 0.5
_SIOCGIFADDR = 0x8915
_NAME_BYTES = 15
IPV6_ADDRESSES = "/proc/net/if_inet6"


class Target(NamedTuple):
    """Where the ranks of a node will listen."""

    node: str
    """For people: `node rank 1 (n1)`."""
    interface: str
    address: str
    port: int


class RankSockets:
    """Listens as the ranks of this node will, on a free port of each interface that they use."""

    def __init__(self, environ: Mapping[str, str], route: str, names: Sequence[str], addresses_v6: str) -> None:
        """`route`: the interface by which the nodes have met, which ranks use where no variable of `names` says so."""
        self._servers: list[socket.socket] = []
        self.listening: list[tuple[str, str, int]] = []
        """Interface, address and port of each."""
        for interface in dict.fromkeys(_interface(environ.get(name, ""), route) for name in names):
            if address := _address_of(interface, addresses_v6):
                self._listen(interface, address)

    def _listen(self, interface: str, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        place = socket.getaddrinfo(address, 0, family, socket.SOCK_STREAM)[0][4]
        server = socket.socket(family, socket.SOCK_STREAM)
        try:
            server.bind(place)
            server.listen()
        except OSError:  # the ranks will say so
            server.close()
            return
        self._servers.append(server)
        # The zone of an address is this node's own name of the interface.
        self.listening.append((interface, address.partition("%")[0], int(server.getsockname()[1])))

    def close(self) -> None:
        """Free the ports."""
        for server in self._servers:
            server.close()


def call_all(targets: Sequence[Target], zone: str = "", patience_s: float = _PATIENCE_S) -> str:
    """Say which of `targets` cannot be reached from here; empty: all can. `zone`: the interface to the other nodes."""
    failed = [f"{target.node} at {target.address} ({target.interface}): {why}"
              for target in targets if (why := _call(target, zone, patience_s))]  # fmt: skip
    return "; ".join(failed)


def _call(target: Target, zone: str, patience_s: float) -> str:
    """Connect to it; why that cannot be."""
    address = f"{target.address}%{zone}" if target.address.startswith("fe80") and zone else target.address
    deadline = time.monotonic() + patience_s
    while True:
        try:
            socket.create_connection((address, target.port), _CALL_S).close()
        except OSError as error:
            if time.monotonic() > deadline:
                return error.strerror or str(error)
            time.sleep(_PAUSE_S)
        else:
            return ""


def _interface(value: str, route: str) -> str:
    """The first interface of a variable's list; NCCL's may be exact (`=eth0`), or say which are not meant (`^lo`)."""
    first = value.split(",", maxsplit=1)[0].removeprefix("=").partition(":")[0]
    return route if not first or first.startswith("^") else first


def _address_of(interface: str, addresses_v6: str) -> str:
    """The address at which a process listens that binds to an interface: IPv4 first; empty: there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:_NAME_BYTES]))
        return socket.inet_ntoa(answer[20:24])
    rows = [line.split() for line in addresses_v6.splitlines()]
    own = sorted((row[3], row[0]) for row in rows if len(row) == 6 and row[5] == interface)
    if not own:
        return ""
    scope, digits = own[0]
    address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
    return f"{address}%{interface}" if scope == "20" else address
