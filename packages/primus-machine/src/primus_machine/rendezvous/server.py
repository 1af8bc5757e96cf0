"""Node 0's side of the meeting of nodes: who has come, who has gone again, and the answers that they get."""

from __future__ import annotations

import errno
import selectors
import socket
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from primus_machine.errors import MachineError
from primus_machine.rendezvous.client import SILENT_S, Refused, Rendezvous, message, messages, peer_address
from primus_machine.rendezvous.rank_sockets import Target

__all__ = ["LISTED", "Refused", "RendezvousServer"]

LISTED = 16
"""So many ranks at most are listed."""
_LOOK_S, _STATUS_EVERY_S, _GOODBYE_S = 0.2, 5.0, 2.0
_GREETING_S = 2.0
"""Whoever has not identified itself after so long is none of ours, however many pieces came."""


@dataclass(slots=True)
class _Peer:
    link: socket.socket
    buffer: bytearray = field(default_factory=bytearray)
    rank: int = -1
    """-1: it has not identified itself."""
    host: str = ""
    address: str = ""
    came: float = field(default_factory=time.monotonic)
    listening: tuple[tuple[str, str, int], ...] = ()
    """Interface, address and port of each place where its ranks would listen."""
    is_asked: bool = False
    """To call another node."""
    called: str | None = None
    """Which node it could not reach; empty: none; None: it has not said so yet."""

    @property
    def name(self) -> str:
        return f"node rank {self.rank} ({self.host})"

    def send(self, **fields: object) -> None:
        try:
            self.link.send(message(**fields))  # short, and few: it fits into the socket's buffer
        except OSError:  # it has gone; reading tells
            pass


class RendezvousServer:
    """Listens for the other nodes. `patience_s`: how long the port may still be held by what ran before."""

    def __init__(self, place: Rendezvous, patience_s: float) -> None:
        self.place = place
        self.server = _listening(place, patience_s)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.server, selectors.EVENT_READ)
        self.peers: dict[int, _Peer] = {}
        """By rank."""
        self.listening: tuple[tuple[str, str, int], ...] = ()
        """Where node 0's own ranks would listen."""
        self.host = ""
        self.sent_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for key in tuple(self.selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]  # all are sockets
        self.selector.close()
        self.server.close()

    @property
    def missing(self) -> list[int]:
        """Ranks of the nodes that have not come."""
        return [rank for rank in range(1, self.place.nodes) if rank not in self.peers]

    def targets(self, rank: int) -> list[Target]:
        """Return where the ranks of the node behind `rank` would listen; behind the last one comes node 0."""
        peer = self.peers.get((rank + 1) % self.place.nodes)
        name, listening = (peer.name, peer.listening) if peer else (f"node rank 0 ({self.host})", self.listening)
        return [Target(name, *place) for place in listening]

    def call(self) -> str | None:
        """Have each node call the next one; the nodes that cannot, or nothing; None: not all have said so yet."""
        for rank, peer in self.peers.items():
            if not peer.is_asked:
                peer.is_asked = True
                peer.send(call=self.targets(rank))
        if any(peer.called is None for peer in self.peers.values()):
            return None
        return "; ".join(f"{peer.name} cannot reach {peer.called}" for peer in self.peers.values() if peer.called)

    @property
    def addresses(self) -> list[str]:
        """Return the addresses from which the other nodes have called."""
        return [peer.address for peer in self.peers.values()]

    @property
    def status(self) -> str:
        """For the others."""
        ranks = self.missing
        if not ranks:
            return f"all {self.place.nodes} have arrived, and look whether their ranks can reach each other"
        listed = ", ".join(map(str, ranks[:LISTED])) + (f" and {len(ranks) - LISTED} more" if ranks[LISTED:] else "")
        return f"{self.place.nodes - len(ranks)} of {self.place.nodes} have arrived; missing: {listed}"

    def look(self) -> None:
        """Take in who comes, and see who goes, for a moment."""
        for key, _ in self.selector.select(_LOOK_S):
            if key.fileobj is self.server:
                self._accept()
            else:
                self._read(key.data)
        for peer in [key.data for key in self.selector.get_map().values() if key.data]:
            if peer.rank < 0 and time.monotonic() > peer.came + _GREETING_S:
                self._leave(peer)
        if time.monotonic() - self.sent_at > _STATUS_EVERY_S:
            self.sent_at = time.monotonic()
            for peer in self.peers.values():
                peer.send(status=self.status)

    def start(self) -> None:
        """Let all start. The port is closed first: the ranks meet there."""
        self.selector.unregister(self.server)
        self.server.close()
        self._part(start=True)

    def end(self, why: str, *, is_unreachable: bool = False) -> None:
        """Tell all that it is over. `is_unreachable`: since some nodes do not reach each other."""
        self._part(ended=why, is_unreachable=is_unreachable)

    def _part(self, **fields: object) -> None:
        """They close first: a connection that this side closes would keep the port for a minute."""
        for peer in self.peers.values():
            peer.send(**fields)
        ends = time.monotonic() + _GOODBYE_S
        while self.peers and time.monotonic() < ends:
            for key, _ in self.selector.select(_LOOK_S):
                if isinstance(key.data, _Peer):
                    self._read(key.data)

    def _accept(self) -> None:
        try:
            link, _ = self.server.accept()
        except OSError:  # it has gone before it came
            return
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * SILENT_S))
        try:
            peer = _Peer(link, address=peer_address(link))
        except OSError:  # it has gone already
            link.close()
            return
        self.selector.register(link, selectors.EVENT_READ, peer)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.link.recv(4096)
            peer.buffer += data
            for fields in messages(peer.buffer):
                self._receive(peer, fields)
            if not data:
                self._leave(peer)
        except BlockingIOError:
            return
        except Refused as error:
            peer.send(refused=str(error))
            self._leave(peer)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):  # none of ours
            self._leave(peer)

    def _receive(self, peer: _Peer, fields: dict[str, Any]) -> None:
        if "called" in fields and peer.rank > 0:
            peer.called = str(fields["called"])
            return
        rank, nodes, host = int(fields["rank"]), int(fields["nodes"]), str(fields["host"])
        if nodes != self.place.nodes:
            raise Refused(f"NNODES is {nodes} on {host}, and {self.place.nodes} on node 0")
        if not 0 < rank < nodes:
            raise Refused(f"NODE_RANK is {rank} on {host}; the nodes beside node 0 have 1 to {nodes - 1}")
        if earlier := self.peers.get(rank):
            raise Refused(f"NODE_RANK is {rank} on {host}, and on {earlier.host}, too")
        peer.rank, peer.host = rank, host
        peer.listening = tuple((str(name), str(where), int(port)) for name, where, port in fields["listening"])
        self.peers[rank] = peer
        peer.send(status=self.status)

    def _leave(self, peer: _Peer) -> None:
        self.selector.unregister(peer.link)
        peer.link.close()
        if self.peers.get(peer.rank) is peer:
            del self.peers[peer.rank]


def _listening(place: Rendezvous, patience_s: float) -> socket.socket:
    """On all interfaces: a node may have several that lead to it.

    Raises:
        MachineError: the port is not to be had.
    """
    ends = time.monotonic() + patience_s
    while True:
        try:
            both = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if both else socket.AF_INET
            server = socket.create_server(("", place.port), family=family, backlog=4096, dualstack_ipv6=both)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and time.monotonic() < ends:
                time.sleep(_LOOK_S)
                continue
            what = f"rendezvous: node 0 cannot listen on port {place.port}: {error.strerror}"
            raise MachineError(
                what, fix="set MASTER_PORT to a port that is free there, the same on all nodes"
            ) from None
        server.setblocking(False)
        return server
