"""The phase in which nodes meet: each listens, says where in the run directory, and measures with one after the other.

There is no service to meet at. Whoever can read `preflight/peers/` is a node of this run; nobody else is let in.
A node that is not there costs the others one time limit: all partners are called at once, before the first round.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from primus_machine.collectives import interface_to
from primus_machine.facts import Facts
from primus_machine.files import plain_json
from primus_machine.files.atomic import regular, write_atomically
from primus_preflight.meeting import exchange, schedule
from primus_preflight.meeting.card import Card, family
from primus_preflight.meeting.door import ASK, LINK, WELCOME, Door
from primus_preflight.meeting.exchange import Measured, Silent

__all__ = ["FOLDER", "Card", "Here", "Meeting", "Met", "Place", "card", "meet"]

FOLDER = "peers"
REACH_S = 8.0
"""Who has said where it listens, and does not answer for so long, cannot be reached."""
_HELLO_S = 3.0
"""So long a node that let us in before may take to say that it is still there."""
_LOOK_S = 0.1, 1.0


class Place(NamedTuple):
    """Where this node stands."""

    folder: str
    """Shared by all nodes: `<run>/preflight`."""
    rank: int
    nodes: int
    wait_s: float
    """How long others may take to come."""
    later_s: float = 60.0
    """How long they may take to come again, once they have measured what each does alone."""
    all_pairs: bool = False
    """Whether each talks to each other one, however many there are."""


class Here(NamedTuple):
    """This node in the meeting, for what all do together afterwards."""

    place: Place
    folder: str
    """Where all of them find each other's files."""
    address: str
    interface: str
    word: str
    """Another at each start."""
    absent: int
    """How many partners never came."""


class Met(NamedTuple):
    """What came of one partner."""

    name: str
    """Its host; `rank 3`: it never said."""
    measured: Measured | None
    why: str = ""
    """Why nothing was measured."""
    came: bool = True
    """Whether it said where it listens."""
    gbps: float = 0.0
    """Of the slower of the two interfaces, as they say; 0: one does not say."""


class Meeting(NamedTuple):
    """What came of all, in the order of rounds."""

    met: tuple[Met, ...]
    of: int
    """How many other nodes there are."""
    here: Here | None = None
    """None: this node has no address at which others reach it."""


def card(facts: Facts, rank: int, host: str) -> Card:
    """This node's, with the address by which ranks would meet; without one where none leads to the others."""
    chosen = facts.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0].lstrip("=")
    master = (facts.host.addresses(facts.environ.get("MASTER_ADDR", "")) or ("",))[0]
    beyond = "192.0.2.1" if master == "::1" or master.startswith("127.") else master  # nobody's: any way out
    address = (_of_interface(chosen) if chosen else "") or _source(beyond) or _source(master)
    interface = chosen or (interface_to(facts.network.routes, beyond) if beyond else "")
    speed = facts.host.text(f"/sys/class/net/{interface}/speed") or ""
    return Card(rank, host, address, interface=interface, gbps=int(speed) / 1000 if speed.isdecimal() else 0.0)


def _of_interface(name: str) -> str:
    """Its IPv4 address; empty: it has none."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            data = fcntl.ioctl(asking, 0x8915, name.encode()[:15].ljust(256, b"\0"))  # SIOCGIFADDR
        except OSError:
            return ""
    return socket.inet_ntoa(data[20:24])


def _source(address: str) -> str:
    """From which of our addresses the kernel would send there. Nothing is sent."""
    if not address:
        return ""
    with socket.socket(family(address), socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((address, 9))
        except OSError:
            return ""
        return str(asking.getsockname()[0])


def _call(mine: Card, other: Card, why: str, seconds: float) -> socket.socket:
    """A connection to another node that has let us in.

    Raises:
        OSError: it has not.
    """
    link = socket.create_connection((other.address, other.port), seconds, source_address=(mine.address, 0))
    try:
        link.settimeout(seconds)
        link.sendall(json.dumps({"token": other.token, "rank": mine.rank, "why": why}).encode() + b"\n")
        if link.recv(1) != WELCOME:
            raise ConnectionRefusedError(None, "it rejected the connection")
    except BaseException:  # Ctrl-C, too: the other node is not left waiting
        link.close()
        raise
    return link


def meet(mine: Card, place: Place) -> Meeting:
    """Measure with all partners of the schedule; nothing is left open afterwards."""
    numbers = schedule.rounds(place.nodes, place.nodes if place.all_pairs else schedule.MOST_ROUNDS)
    partners = [one for number in numbers if (one := schedule.partner(place.rank, number, place.nodes)) is not None]
    if not mine.address:
        return Meeting((), place.nodes - 1)
    folder = os.path.join(place.folder, FOLDER)
    os.makedirs(place.folder, exist_ok=True)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with _open_door(mine, folder) as door:
        found = _Search(door, folder, time.monotonic() + place.wait_s).all(partners)
        try:
            end = time.monotonic() + place.wait_s + exchange.LIMIT_S * len(found)
            met = tuple(_measured(door.card, one, end) for one in found)
            here = Here(
                place, folder, mine.address, mine.interface, secrets.token_hex(8), sum(not one.came for one in met)
            )
            return Meeting(met, place.nodes - 1, here)
        finally:
            for partner in found:
                if partner.link:
                    partner.link.close()


@contextmanager
def _open_door(mine: Card, folder: str) -> Iterator[Door]:
    door = Door(mine)
    path = _file(folder, mine.rank)
    try:
        write_atomically(path, json.dumps({name: getattr(door.card, name) for name in Card.__slots__}), durable=False)
        yield door
    finally:
        door.close()
        if os.path.exists(path):  # it leads nowhere now, and a restart in this folder must not follow it
            os.unlink(path)


def _file(folder: str, rank: int) -> str:
    return os.path.join(folder, f"{rank}.json")


@dataclass(slots=True)
class _Partner:
    rank: int
    card: Card | None = None
    link: socket.socket | None = None
    why: str = ""


class _Search:
    """Looks for all partners at once. Who has the lower rank calls."""

    def __init__(self, door: Door, folder: str, deadline: float) -> None:
        self.door, self.folder, self.deadline = door, folder, deadline
        self._over = threading.Event()

    def all(self, ranks: Sequence[int]) -> list[_Partner]:
        if not ranks:
            return []
        with ThreadPoolExecutor(len(ranks), "preflight-reach") as pool:
            try:
                return list(pool.map(self._one, ranks))
            finally:
                self._over.set()  # also where Ctrl-C came: the threads stop looking

    def _one(self, rank: int) -> _Partner:
        found, pause, deadline = _Partner(rank), _LOOK_S[0], self.deadline
        while not (found.link and found.card) and not self._over.is_set():
            found.card = self._card(rank) or found.card
            if found.card and deadline == self.deadline:
                deadline = time.monotonic() + REACH_S
            left = deadline - time.monotonic()
            if left <= 0:
                found.why = found.why or self._lost(found)
                break
            pause = min(2 * pause, _LOOK_S[1], left)
            if not found.link:
                found.link, found.why = self._link(found, pause, left)
        return found

    def _lost(self, found: _Partner) -> str:
        return f"it did not call within {REACH_S:g} s" if found.card else "it did not connect"

    def _link(self, found: _Partner, pause: float, left: float) -> tuple[socket.socket | None, str]:
        if found.rank < self.door.card.rank:
            return self.door.caller(found.rank, pause), ""
        if found.card:
            try:
                return _call(self.door.card, found.card, LINK, left), ""
            except OSError as error:
                found.why = f"{found.card.address} port {found.card.port}: {error.strerror or 'no answer in time'}"
        self._over.wait(pause)
        return None, found.why

    def _card(self, rank: int) -> Card | None:
        """Of another node; listing the folder first makes NFS look again."""
        try:
            if os.path.basename(_file("", rank)) not in os.listdir(self.folder):
                return None
            with open(_file(self.folder, rank), encoding="utf-8", opener=regular) as file:
                return Card(**plain_json.loads(file.read()))
        except (OSError, ValueError, TypeError):
            return None


def _measured(mine: Card, one: _Partner, end: float) -> Met:
    if not one.card:
        return Met(f"rank {one.rank}", None, one.why, came=False)
    other = one.card
    gbps = min(mine.gbps, other.gbps)
    if not one.link:
        return Met(other.host, None, one.why, gbps=gbps)

    def is_alive() -> bool:
        try:
            _call(mine, other, ASK, _HELLO_S).close()
        except OSError:
            return False
        return time.monotonic() < end

    try:
        play = exchange.lead if mine.rank < one.rank else exchange.follow
        return Met(other.host, play(one.link, is_alive), gbps=gbps)
    except Silent as error:
        return Met(other.host, None, str(error), gbps=gbps)
    finally:
        one.link.close()
