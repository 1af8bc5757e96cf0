"""Where a node listens: it lets in who has read its card, and nobody else holds it up, however slowly they speak."""

from __future__ import annotations

import hmac
import secrets
import selectors
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace

from primus_machine.files import plain_json
from primus_preflight.meeting.card import Card, family

__all__ = ["ASK", "LINK", "WELCOME", "Door"]

WELCOME = b"w"
LINK, ASK = "link", "ask"
"""Why somebody calls: to measure, or to ask whether one is still there."""
_GREETING_S = 2.0
"""For the whole greeting, however many pieces it comes in."""
_SHORT = 512
_MOST = 256
"""So many may greet at once; of more, the one that has taken longest goes."""
_LOOK_S = 0.2
_CLOSE_S = 3.0


@dataclass(slots=True, eq=False)
class _Greeting:
    """What a caller has said so far."""

    link: socket.socket
    ends: float
    received: bytearray = field(default_factory=bytearray)

    def hear(self) -> bool:
        """Take what is there; whether that was all. One short line is.

        Raises:
            OSError: the caller has gone.
            ValueError: this is no greeting.
        """
        data = self.link.recv(_SHORT)
        self.received += data
        if not data or len(self.received) > _SHORT:
            raise ValueError("no greeting")
        return self.received.endswith(b"\n")


class Door:
    """Listens, lets in who has read our card, and keeps their connections by rank."""

    def __init__(self, mine: Card) -> None:
        self._socket = socket.create_server((mine.address, 0), family=family(mine.address), backlog=128)
        self._socket.setblocking(False)
        self.card = replace(mine, port=self._socket.getsockname()[1], token=secrets.token_hex(16))
        self._links: dict[int, socket.socket] = {}
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._greetings: list[_Greeting] = []
        """The oldest first."""
        self._thread = threading.Thread(target=self._listen, name="preflight-listen", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            while not self._closing.is_set():
                for key, _ in selector.select(_LOOK_S):
                    if key.data is None:
                        self._accept(selector)
                    elif key.data in self._greetings:
                        self._hear(selector, key.data)
                for late in [one for one in self._greetings if one.ends < time.monotonic()]:
                    self._drop(selector, late)
            for left in list(self._greetings):
                self._drop(selector, left)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            link, _ = self._socket.accept()
        except OSError:  # the caller has gone, or there are too many open files
            return
        link.setblocking(False)
        greeting = _Greeting(link, time.monotonic() + _GREETING_S)
        self._greetings.append(greeting)
        selector.register(link, selectors.EVENT_READ, greeting)
        if len(self._greetings) > _MOST:
            self._drop(selector, self._greetings[0])

    def _hear(self, selector: selectors.BaseSelector, greeting: _Greeting) -> None:
        try:
            if not greeting.hear():
                return
            rank, why = self._known(bytes(greeting.received))
            greeting.link.sendall(WELCOME)
        except BlockingIOError:
            return
        except (OSError, ArithmeticError, ValueError, KeyError, TypeError):  # nobody of ours
            self._drop(selector, greeting)
            return
        if why == ASK:
            self._drop(selector, greeting)
            return
        selector.unregister(greeting.link)
        self._greetings.remove(greeting)
        self._let_in(rank, greeting.link)

    def _drop(self, selector: selectors.BaseSelector, greeting: _Greeting) -> None:
        selector.unregister(greeting.link)
        self._greetings.remove(greeting)
        greeting.link.close()

    def _let_in(self, rank: int, link: socket.socket) -> None:
        link.settimeout(_CLOSE_S)
        with self._changed:
            if earlier := self._links.pop(rank, None):
                earlier.close()
            self._links[rank] = link
            self._changed.notify_all()

    def _known(self, received: bytes) -> tuple[int, str]:
        data = plain_json.loads(received)
        if not hmac.compare_digest(str(data["token"]).encode(), self.card.token.encode()):
            raise ValueError("another token")
        return int(data["rank"]), str(data["why"])

    def caller(self, rank: int, seconds: float) -> socket.socket | None:
        """The connection that `rank` opened, waiting so long for it."""
        with self._changed:
            self._changed.wait_for(lambda: rank in self._links, seconds)
            return self._links.get(rank)

    def close(self) -> None:
        """Stop listening; whatever was let in is closed."""
        self._closing.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(_CLOSE_S)
        self._socket.close()
        for link in self._links.values():
            link.close()
