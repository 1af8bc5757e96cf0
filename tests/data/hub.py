"""A Hugging Face Hub on this machine: the endpoints that `data fetch` asks, and a store on another port for large files.

    GET /api/datasets/NAME[/revision/REVISION]             commit and card
    GET /api/datasets/NAME/tree/COMMIT?recursive=true      files, page by page, the next page in the header Link
    GET /datasets/NAME/resolve/COMMIT/PATH                 small files; for large ones, a redirect to the store
    GET /store/SHA256?signature=...                        on the other port: bytes, by ranges

A fault is answered once, by the first request whose path has the fault's words in it.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

COMMIT = "c0ffee" * 6 + "c0de"
NAME = "team/corpus"
PAGE = 3
SIGNATURE = "X-Amz-Signature=verysecretsignature0123456789"


@dataclass
class Fault:
    """What happens to a request."""

    where: str
    """In the request's path."""
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int = -1
    """Bytes, after which the connection breaks."""
    replaced: bytes = b""
    """The bytes that come instead of the file's."""
    wait: threading.Event | None = None
    """Half of the bytes come, and the rest when this is set."""
    times: int = 1
    only_whole: bool = False
    """Only requests for all of a file."""


class Hub:
    """Its files and faults, and the requests that came."""

    def __init__(self, files: Mapping[str, bytes], card: Mapping[str, object] | None = None) -> None:
        self.files, self.card = dict(files), dict(card or {})
        self.commits = [COMMIT]
        """The last one is the newest."""
        self.faults: list[Fault] = []
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        """Paths with their headers."""
        self.small = 0
        """Files of fewer bytes come from the Hub itself, without a checksum."""
        self.has_ranges = True
        self.sizes: dict[str, int] = {}
        """What the list says of files that are smaller."""
        self.halted = threading.Event()
        """A fault waits."""
        self.lock = threading.Lock()
        self.url = self.store = ""

    def fault(self, path: str, part: str) -> Fault | None:
        with self.lock:
            for one in self.faults:
                if one.where in path and one.times and (part.startswith("bytes=0-") or not one.only_whole):
                    one.times -= 1
                    return one
        return None

    def paths(self, part: str) -> list[str]:
        return [path for path, _ in self.asked if part in path]

    def ranges(self, part: str) -> list[str]:
        return [headers.get("range", "") for path, headers in self.asked if part in path]


@contextmanager
def serving(files: Mapping[str, bytes], card: Mapping[str, object] | None = None) -> Iterator[Hub]:
    """A Hub with one dataset."""
    hub = Hub(files, card)

    class Handler(_Handler):
        state = hub

    servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    hub.url, hub.store = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in servers]
    for server, thread in zip(servers, threads, strict=True):
        server.daemon_threads = True
        thread.start()
    try:
        yield hub
    finally:
        for one in hub.faults:
            if one.wait:
                one.wait.set()
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Hub

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)  # of a proxy, the whole address is asked
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.state.asked.append((path, headers))
        fault = self.state.fault(path, headers.get("range", ""))
        if fault and fault.status:
            self._send(fault.status, b"", fault.headers)
        elif found := re.fullmatch(rf"/api/datasets/{NAME}(?:/revision/(.*))?", path):
            if found[1] in (None, "main", "refs/convert/parquet", *self.state.commits):
                commit = found[1] if found[1] in self.state.commits else self.state.commits[-1]
                self._json({"sha": commit, "cardData": self.state.card})
            else:
                self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif path.startswith(f"/api/datasets/{NAME}/tree/"):
            self._tree(path)
        elif found := re.fullmatch(rf"/datasets/{NAME}/resolve/[0-9a-f]{{40}}/(.*)", path):
            self._resolve(found[1], fault)
        elif path.startswith("/store/"):
            self._bytes(next(data for data in self.state.files.values() if _sha(data) == path[7:]), fault)
        elif path[1:] in self.state.files:
            self._bytes(self.state.files[path[1:]], fault)
        else:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

    def _tree(self, path: str) -> None:
        query = urllib.parse.parse_qs(self.path.partition("?")[2])
        first = int(query.get("cursor", ["0"])[0])
        rows = [self._entry(name, data) for name, data in sorted(self.state.files.items())]
        following = f"{self.state.url}{path}?recursive=true&cursor={first + PAGE}"
        links = {"Link": f'<{following}>; rel="next"'} if first + PAGE < len(rows) else {}
        self._json(rows[first : first + PAGE], links)

    def _entry(self, name: str, data: bytes) -> dict[str, object]:
        size = self.state.sizes.get(name, len(data))
        entry: dict[str, object] = {"type": "file", "path": name, "size": size, "oid": "0" * 40}
        if len(data) >= self.state.small:
            entry["lfs"] = {"oid": _sha(data), "size": size, "pointerSize": 130}
        return entry

    def _resolve(self, name: str, fault: Fault | None) -> None:
        data = self.state.files[name]
        if len(data) < self.state.small:
            self._bytes(data, fault)
        else:
            self._send(302, b"", {"Location": f"{self.state.store}/store/{_sha(data)}?{SIGNATURE}"})

    def _json(self, data: object, headers: Mapping[str, str] | None = None) -> None:
        self._send(200, json.dumps(data).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _bytes(self, data: bytes, fault: Fault | None) -> None:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if self.state.has_ranges else None
        first, last = (int(found[1]), min(int(found[2]), len(data) - 1)) if found else (0, len(data) - 1)
        etag = f'"{_sha(data)}"'
        self.send_response(206 if found else 200)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(last + 1 - first))
        if found:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.end_headers()
        self._write((fault.replaced if fault and fault.replaced else data)[first : last + 1], fault)

    def _write(self, body: bytes, fault: Fault | None) -> None:
        try:
            if fault and fault.cut_after >= 0:
                self.wfile.write(body[: fault.cut_after])
                self.wfile.flush()
                self.close_connection = True
            elif fault and fault.wait:
                half = len(body) // 2
                self.wfile.write(body[:half])
                self.state.halted.set()
                fault.wait.wait(120)
                self.wfile.write(body[half:])
            else:
                self.wfile.write(body)
        except OSError:  # whoever asked was killed
            self.close_connection = True


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
