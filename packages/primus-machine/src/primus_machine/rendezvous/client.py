"""Where nodes meet, what they say to each other there (a JSON object a line), and a node's call to node 0."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from primus_machine.rendezvous.rank_sockets import RankSockets, Target, call_all

__all__ = [
    "FIX",
    "NAME_FIX",
    "SILENT_S",
    "Ended",
    "Refused",
    "Rendezvous",
    "RendezvousClient",
    "message",
    "messages",
    "peer_address",
    "unresolved",
]

FIX = "start the missing nodes with the same MASTER_ADDR and MASTER_PORT; look at firewall and routes between the nodes"
NAME_FIX = "set MASTER_ADDR to a name that each node knows"
_PORT_FIX = "set MASTER_PORT to a free port, the same on all nodes"
_CONNECT_S, _LOOK_S = 3.0, 0.2
_PAUSE_S = 0.5
SILENT_S = 20.0
"""Node 0 speaks every few seconds; who is silent for so long is gone."""
MOST = 64 << 10
"""A line is no longer; whoever sends more is none of ours."""


class Rendezvous(NamedTuple):
    """Which nodes meet, and where."""

    address: str
    port: int
    nodes: int
    rank: int

    @property
    def where(self) -> str:
        """For people: MASTER_ADDR:MASTER_PORT."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class Refused(Exception):  # noqa: N818  # the answer of node 0, not a mistake
    """Node 0 does not take this node; the text says why."""


class Ended(Exception):  # noqa: N818
    """Node 0 has given up; the text says why. `is_unreachable`: some nodes do not reach each other."""

    def __init__(self, text: str, *, is_unreachable: bool) -> None:
        super().__init__(text)
        self.is_unreachable = is_unreachable


def unresolved(address: str, why: str = "") -> str:
    """In words: this node finds no address for MASTER_ADDR."""
    return f"MASTER_ADDR is '{address}', which this node cannot resolve{f' ({why})' if why else ''}"


def message(**fields: object) -> bytes:
    """One line."""
    return json.dumps(fields).encode() + b"\n"


def messages(buffer: bytearray) -> list[dict[str, Any]]:
    """The whole lines in the buffer, which are taken out of it. What is no JSON object is none of ours.

    Raises:
        ValueError, TypeError: somebody else speaks.
    """
    found = []
    while (end := buffer.find(b"\n")) >= 0:
        fields = json.loads(bytes(buffer[:end]))
        del buffer[: end + 1]
        found.append(dict(fields))
    if len(buffer) > MOST:
        raise ValueError("a line without end")
    return found


def peer_address(link: socket.socket) -> str:
    """Return the IP address at the other end of a connection."""
    host, _, *rest = link.getpeername()
    zone = f"%{socket.if_indextoname(rest[1])}" if len(rest) > 1 and rest[1] and "%" not in host else ""
    return f"{host.removeprefix('::ffff:')}{zone}"


class RendezvousClient:
    """Calls node 0 again and again, until it answers and lets this node start."""

    def __init__(self, place: Rendezvous, host: str, listen: Callable[[str], RankSockets]) -> None:
        """`listen`: as the ranks will, knowing the address at which node 0 was reached."""
        self.place, self.host, self.listen = place, host, listen
        self.sockets: RankSockets | None = None
        self.link: socket.socket | None = None
        self.buffer = bytearray()
        self.heard = 0.0
        self.is_answered = False
        self.reached = ""
        """The address at which node 0 answered; an IPv6 address of a link has its interface behind `%`."""
        self.state = f"no answer from {place.where}"
        """What is known, in words."""
        self.fix = FIX
        """What to do if it stays so."""

    def look(self) -> bool:
        """Wait a moment for what comes; whether this node may start.

        Raises:
            Refused, Ended: it shall not.
        """
        try:
            if self.link is None:
                self._connect()
            return self._heard()
        except socket.gaierror as error:
            self._hang_up(unresolved(self.place.address, error.strerror or ""), NAME_FIX)
        except OSError as error:
            self._hang_up(f"no answer from {self.place.where} ({error.strerror or str(error) or 'nothing in time'})")
        except (ValueError, TypeError, RecursionError):
            self._hang_up(f"another program answers at {self.place.where}, not Primus", _PORT_FIX)
        time.sleep(_PAUSE_S)
        return False

    def _connect(self) -> None:
        self.link = socket.create_connection((self.place.address, self.place.port), _CONNECT_S)
        self.link.settimeout(_LOOK_S)
        self.reached = peer_address(self.link)
        self.heard = time.monotonic()
        self.sockets = self.listen(self.reached)
        about = {"rank": self.place.rank, "nodes": self.place.nodes, "host": self.host}
        self.link.sendall(message(**about, listening=self.sockets.listening))
        self.state = f"connected to {self.place.where}, but node 0 does not answer there: is it another program's port?"
        self.fix = _PORT_FIX

    def _heard(self) -> bool:
        assert self.link
        try:
            data = self.link.recv(4096)
        except TimeoutError:
            if self.is_answered and time.monotonic() > self.heard + SILENT_S:
                raise ConnectionAbortedError(None, "node 0 has stopped answering") from None
            return False
        if not data:
            raise ConnectionResetError(None, "it closed the connection")
        self.heard = time.monotonic()
        self.buffer += data
        for fields in messages(self.buffer):
            if "start" in fields:
                self._close()
                return True
            self._take(fields)
        return False

    def _take(self, fields: dict[str, Any]) -> None:
        if "refused" in fields:
            self._close()
            raise Refused(str(fields["refused"]))
        if "ended" in fields:
            self._close()
            raise Ended(str(fields["ended"]), is_unreachable=fields.get("is_unreachable") is True)
        if "call" in fields and self.link:
            zone = self.reached.partition("%")[2]
            self.link.sendall(message(called=call_all([Target(*target) for target in fields["call"]], zone)))
            self.heard = time.monotonic()
        if "status" in fields:
            self.is_answered = True
            self.state = f"connected to {self.place.where}, waiting for other nodes: {fields['status']}"
            self.fix = FIX

    def _hang_up(self, state: str, fix: str = FIX) -> None:
        self._close()
        self.is_answered = False
        self.state, self.fix = state, fix

    def _close(self) -> None:
        if self.link:
            self.link.close()
        if self.sockets:
            self.sockets.close()
        self.link = self.sockets = None
        self.buffer.clear()
