"""HTTP that continues after a broken connection: each retry is reported, and they come to an end.

The library httpx takes proxies and certificates from the environment, and sends the token to no other host: on a
redirect to another origin, it drops the header.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from primus_data.fetching import progress
from primus_data.fetching.request import shown
from primus_machine.errors import MachineError, PrimusError
from primus_machine.text import printable
from primus_machine.units import counted, time_span

__all__ = ["Client", "Refused", "Remote"]

_CONNECT_S = 15.0
_FIRST_CONTACT_S = 60.0
"""So long a host is tried that has never answered: most often its name or the network is wrong."""
_LONGEST_PAUSE_S = 60.0
_AGAIN = (408, 425, 429)
"""And all from 500 on."""
_MOST_JSON = 1 << 28


class Refused(Exception):  # noqa: N818  # it names what happened; who asked says what it means
    """A server answered, and will answer so again."""

    def __init__(self, status: int, url: str, code: str = "", said: str = "") -> None:
        super().__init__(status, url)
        self.status, self.url, self.code, self.said = status, url, code, said

    def why(self) -> str:
        """What the server answered."""
        return f"{self.url} answered {self.status}" + (f": {self.said}" if self.said else "")


class _Again(Exception):  # noqa: N818  # it names what to do
    """A failure that may be over soon; `after_s`: the server says when."""

    def __init__(self, why: str, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Remote(NamedTuple):
    """A file on a server."""

    url: str
    name: str
    """As messages call it."""
    size: int
    mark: str = ""
    """Its ETag: if the server sends another one, it is another file."""
    headers: tuple[tuple[str, str], ...] = ()


class Client:
    """Asks servers; threads share it."""

    def __init__(self, *, give_up_after_s: float, read_s: float, agent: str) -> None:
        limits = httpx.Timeout(_CONNECT_S, read=read_s)
        headers = {"Accept-Encoding": "identity", "User-Agent": agent}
        self._http = httpx.Client(follow_redirects=True, timeout=limits, headers=headers)
        self.give_up_after_s = give_up_after_s
        self.stop = threading.Event()
        """Set: whoever waits for a retry ends."""
        self.received = 0
        self._answered: set[str] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """End whoever waits, and the connections."""
        self.stop.set()
        self._http.close()

    def json(self, url: str, headers: Mapping[str, str]) -> tuple[Any, str]:
        """The answer, and where its next page is.

        Raises:
            Refused: the server does not give it.
            PrimusError: no answer came in time, or it is none.
        """
        patience = _Patience(self, url)
        while True:
            try:
                with self._answer(url, headers) as response:
                    return _parsed(_whole(response, url), url), response.links.get("next", {}).get("url", "")
            except (_Again, httpx.HTTPError) as error:
                patience.wait(error)

    def head(self, url: str) -> httpx.Headers:
        """The headers of the answer for the first byte of a file; `content-range` is there if the server knows ranges.

        Raises:
            Refused: the server does not give it.
            PrimusError: no answer came in time.
        """
        patience = _Patience(self, url)
        while True:
            try:
                with self._answer(url, {"Range": "bytes=0-0"}) as response:
                    return response.headers
            except (_Again, httpx.HTTPError) as error:
                patience.wait(error)

    def read(self, remote: Remote, start: int, stop: int) -> Iterator[bytes]:
        """The bytes from `start` to `stop`; after a broken connection, from where it broke.

        Raises:
            Refused: the server does not give it.
            PrimusError: nothing came in time, or the file is another one by now.
        """
        at, patience = start, _Patience(self, remote.url, remote.name)
        while at < stop:
            try:
                with self._answer(remote.url, {**dict(remote.headers), "Range": f"bytes={at}-{stop - 1}"}) as response:
                    for chunk in _from(response, at, stop, remote):
                        at += len(chunk)
                        self._count(len(chunk))
                        patience.begin()
                        yield chunk
                if at < stop:
                    raise _Again(f"the answer ended {stop - at:,} bytes early")
            except (_Again, httpx.HTTPError) as error:
                patience.wait(error)

    def _count(self, size: int) -> None:
        with self._lock:
            self.received += size

    @contextmanager
    def _answer(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        if self.stop.is_set():
            raise PrimusError("the download was stopped")
        with self._http.stream("GET", url, headers=dict(headers)) as response:
            self._answered.add(httpx.URL(url).host)
            if response.status_code not in (200, 206):
                raise _refusal(response)
            yield response

    def has_answered(self, url: str) -> bool:
        """Whether this host has answered before."""
        return httpx.URL(url).host in self._answered


class _Patience:
    """How long a failing request is tried: until nothing came for so long."""

    def __init__(self, client: Client, url: str, name: str = "") -> None:
        self.client, self.url, self.name = client, url, printable(name) or shown(url)
        self.begin()

    def begin(self) -> None:
        """Something came."""
        self.tries, self.since = 0, time.monotonic()

    def wait(self, error: Exception) -> None:
        """Pause before the next try.

        Raises:
            PrimusError: there is none.
        """
        has_answered, reason = self.client.has_answered(self.url), _reason(error)
        if isinstance(error, httpx.UnsupportedProtocol | httpx.TooManyRedirects) or "CERTIFICATE" in reason:
            fix = "name the certificates of your network in SSL_CERT_FILE" if "CERTIFICATE" in reason else ""
            raise MachineError(f"{self.name} cannot be read", why=reason, fix=fix)
        limit_s = self.client.give_up_after_s if has_answered else min(self.client.give_up_after_s, _FIRST_CONTACT_S)
        self.tries += 1
        pause_s = min(2.0 ** (self.tries - 1), _LONGEST_PAUSE_S) * random.uniform(0.75, 1.25)  # noqa: S311  # no secret
        if isinstance(error, _Again) and error.after_s is not None:
            pause_s = error.after_s
        spent_s = time.monotonic() - self.since
        if spent_s + pause_s > limit_s:
            raise self._given_up(reason, spent_s, has_answered, pause_s)
        left = f"giving up in {time_span(limit_s - spent_s)}"
        message = f"{self.name}: {reason}; retry {self.tries} in {pause_s:.0f} s, {left}"
        progress.say("data_fetch_retry", message)
        if self.client.stop.wait(pause_s):
            raise PrimusError("the download was stopped")

    def _given_up(self, reason: str, spent_s: float, has_answered: bool, pause_s: float) -> PrimusError:
        what = f"{self.name} cannot be read"
        why = f"{reason}; tried {counted(self.tries, 'time')} in {time_span(spent_s)}, next in {time_span(pause_s)}"
        if has_answered:
            return PrimusError(what, why=why, fix="run the same command again: it continues where it stopped")
        proxies = "set HTTPS_PROXY if this network needs a proxy, HF_ENDPOINT or --endpoint for a mirror of the Hub"
        return MachineError(what, why=why, fix=f"check the address and the network; {proxies}")


def _reason(error: Exception) -> str:
    """What happened, without addresses that may hold a signature."""
    if isinstance(error, _Again):
        return str(error)
    text = re.sub(r"https?://\S+", lambda found: shown(found[0]), str(error))
    return printable(text)[:300] or type(error).__name__


def _refusal(response: httpx.Response) -> Exception:
    status, headers = response.status_code, response.headers
    said = printable(headers.get("x-error-message", ""))[:300]
    if status in _AGAIN or status // 100 == 5:
        why = f"{response.url.host} answered {status}" + (f": {said}" if said else "")
        return _Again(why, _pause(headers))
    return Refused(status, shown(str(response.url)), headers.get("x-error-code", ""), said)


def _pause(headers: httpx.Headers) -> float | None:
    """When the server will answer again: `Retry-After`, or `t` in the `ratelimit` of the Hub."""
    found = re.fullmatch(r"\s*([0-9]{1,9})\s*", headers.get("retry-after", "")) or re.search(
        r"\bt=([0-9]{1,9})", headers.get("ratelimit", "")
    )
    return float(found[1]) if found else None


def _whole(response: httpx.Response, url: str) -> bytes:
    """The body, which may say nothing of its length, and have no end."""
    found = bytearray()
    for chunk in response.iter_bytes():
        found += chunk
        if len(found) > _MOST_JSON:
            raise PrimusError(f"the answer of {shown(url)} is too long", fix="check --endpoint")
    return bytes(found)


def _parsed(data: bytes, url: str) -> Any:
    import orjson

    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise PrimusError(f"{shown(url)} did not answer with JSON", why=str(error), fix="check --endpoint") from None


def _from(response: httpx.Response, at: int, stop: int, remote: Remote) -> Iterator[bytes]:
    """The bytes from `at` on of an answer that may begin with the first byte of the file."""
    _check_same(response, at, remote)
    skip = 0 if response.status_code == 206 else at
    left = stop - at
    for chunk in response.iter_raw():  # in chunks of one size, those that had come would be lost with the connection
        part = chunk[skip:][:left]
        skip -= min(skip, len(chunk))
        left -= len(part)
        if part:
            yield part
        if not left:
            return


def _check_same(response: httpx.Response, at: int, remote: Remote) -> None:
    etag = response.headers.get("etag", "")
    size, begins = response.headers.get("content-length", ""), at
    if found := re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("content-range", "")):
        begins, size = int(found[1]), found[2]
    elif response.status_code == 206:
        size = ""
    if (remote.mark and etag and etag != remote.mark) or (size and int(size) != remote.size) or begins != at:
        raise PrimusError(
            f"{remote.name} has changed",
            why=f"it has {size or '?'} bytes (ETag {etag or '-'}), and had {remote.size} (ETag {remote.mark or '-'})",
            fix="fetch it into another folder",
        )
