"""Two nodes measure what lies between them, over one TCP connection: round trips, and a stream each way.

One stream of plain TCP is slower than RDMA or many streams. It tells which link is worse than the others, not how
fast the adapter is.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["LIMIT_S", "Measured", "Silent", "follow", "lead", "receive"]

LIMIT_S = 10.0
"""No pair takes longer."""
SILENT_S = 4.0
"""Who does not come to its turn for so long is asked whether it is still there."""
_STREAM_S, _STREAM_BYTES = 0.3, 2**32
_PINGS, _PING_S = 200, 0.2
_CHUNK = 128 * 1024
_MORE, _LAST = 0, 1
_GO, _READY, _PING, _DONE = b"g", b"r", b"p", b"d"


class Measured(NamedTuple):
    """What one of the two knows afterwards."""

    latency_us: float
    """The median round trip of a message of one byte."""
    sent_gbps: float
    """Gbit/s from here to the other, as the other counted them."""
    received_gbps: float


class Silent(Exception):  # noqa: N818  # what happened, not a mistake
    """The other does not answer any more; the text says what it was asked for."""


def lead(link: socket.socket, is_alive: Callable[[], bool]) -> Measured:
    """The part of the one who begins. `is_alive`: whether a partner that has not come yet is still there.

    Raises:
        Silent: the other has gone, or is too slow to wait for.
    """
    _prepare(link)
    _send(link, _GO)
    _await(link, _READY, is_alive)
    deadline = time.monotonic() + LIMIT_S
    latency = _ping(link)
    _stream(link)
    sent = _number(link, deadline)
    received = _count(link, deadline)
    _send(link, b"%15.6f\n" % received + b"%15.3f\n" % latency)
    return Measured(latency, sent, received)


def follow(link: socket.socket, is_alive: Callable[[], bool]) -> Measured:
    """The part of the other, step by step.

    Raises:
        Silent: as `lead`.
    """
    _prepare(link)
    _await(link, _GO, is_alive)
    deadline = time.monotonic() + LIMIT_S
    _send(link, _READY)
    while receive(link, 1, deadline) == _PING:
        _send(link, _PING)
    received = _count(link, deadline)
    _send(link, b"%15.6f\n" % received)
    _stream(link)
    sent, latency = _number(link, deadline), _number(link, deadline)
    return Measured(latency, sent, received)


def _prepare(link: socket.socket) -> None:
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A slow link shall not have megabytes in front of it when the time is over.
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 2 * _CHUNK)


def _await(link: socket.socket, word: bytes, is_alive: Callable[[], bool]) -> None:
    """Wait for the partner's turn: it may be held up by another one."""
    while True:
        try:
            link.settimeout(SILENT_S)
            answer = link.recv(1)
        except TimeoutError:
            if is_alive():
                continue
            raise Silent("it stopped answering") from None
        except OSError as error:
            raise Silent(f"the connection broke: {error.strerror}") from None
        if answer != word:
            raise Silent("it closed the connection")
        return


def _ping(link: socket.socket) -> float:
    """Median of many round trips, µs."""
    taken: list[float] = []
    end = time.monotonic() + _PING_S
    while len(taken) < _PINGS and (not taken or time.monotonic() < end):
        began = time.perf_counter()
        _send(link, _PING)
        receive(link, 1, end + LIMIT_S)
        taken.append(time.perf_counter() - began)
    _send(link, _DONE)
    return 1e6 * statistics.median(taken)


def _stream(link: socket.socket) -> None:
    """Send for a while. The first byte of each chunk says whether it is the last one."""
    chunk = bytearray(_CHUNK)
    end, sent = time.monotonic() + _STREAM_S, 0
    while chunk[0] != _LAST:
        chunk[0] = _LAST if time.monotonic() > end or sent >= _STREAM_BYTES else _MORE
        _send(link, chunk)
        sent += _CHUNK


def _count(link: socket.socket, deadline: float) -> float:
    """What comes, in Gbit/s, from the first byte on."""
    chunk = memoryview(bytearray(_CHUNK))
    at = _arrived(link, chunk, deadline)
    began, got = time.perf_counter(), 0
    while True:
        while at < _CHUNK:
            at += _arrived(link, chunk[at:], deadline)
        got += _CHUNK
        if chunk[0] == _LAST:
            return 8e-9 * got / max(time.perf_counter() - began, 1e-9)
        at = 0


def _number(link: socket.socket, deadline: float) -> float:
    try:
        return float(receive(link, 16, deadline))
    except ValueError:
        raise Silent("it sent an invalid message") from None


def receive(link: socket.socket, size: int, deadline: float) -> bytes:
    """Exactly so many bytes.

    Raises:
        Silent: they did not come.
    """
    data = memoryview(bytearray(size))
    at = 0
    while at < size:
        at += _arrived(link, data[at:], deadline)
    return bytes(data)


def _arrived(link: socket.socket, room: memoryview, deadline: float) -> int:
    try:
        link.settimeout(max(deadline - time.monotonic(), 0.001))
        got = link.recv_into(room)
    except TimeoutError:
        raise Silent(f"it was not done after {LIMIT_S:g} s") from None
    except OSError as error:
        raise Silent(f"the connection broke: {error.strerror}") from None
    if not got:
        raise Silent("it closed the connection")
    return got


def _send(link: socket.socket, data: bytes | bytearray) -> None:
    try:
        link.settimeout(LIMIT_S)
        link.sendall(data)
    except TimeoutError:
        raise Silent(f"it did not take {len(data)} bytes in {LIMIT_S:g} s") from None
    except OSError as error:
        raise Silent(f"the connection broke: {error.strerror}") from None
