"""Fetch the rows of a request into a folder, from where an interrupted fetch of it stopped."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import IO, Any, cast

from primus_data.fetching import extent, manifest, progress, space
from primus_data.fetching import sources as sources_
from primus_data.fetching.folder import Folder
from primus_data.fetching.network import Client, Refused
from primus_data.fetching.progress import Progress
from primus_data.fetching.request import Request
from primus_data.fetching.rows import Columns, Reading
from primus_data.fetching.shards import Shard, name_of
from primus_data.fetching.sources import Listing, Source
from primus_data.fetching.staging import RemoteFile, Staging
from primus_data.sources.files import MANIFEST
from primus_machine.errors import MachineError, PrimusError, RequestError
from primus_machine.files.atomic import FULL
from primus_machine.units import counted, time_span

__all__ = ["fetch"]

_MOST_SHOWN = 100
"""So many rows that were skipped are named in the manifest."""
_BUFFER = 1 << 23


def fetch(request: Request, addresses: Sequence[str], output: str, client: Client, endpoint: str, workers: int) -> None:
    """Fetch. `addresses`: the sources as the person wrote them.

    Raises:
        PrimusError: it cannot be done.
    """
    with ExitStack() as stack:
        stack.callback(client.close)
        folder = Folder(output)
        stack.callback(folder.close)
        if _is_finished(folder, request):
            return
        state = folder.state()
        if state and state["request"] != request.to_dict() and not folder.shards():
            state = None  # the other one has fetched nothing
        _refuse_other(state, request, output)
        line = stack.enter_context(Progress())
        line.note = "listing files"
        commit = str(state["revision"]) if state else ""
        listing = sources_.find(request, addresses, client, endpoint, commit)
        try:
            one = _Fetch(request, folder, client, listing, workers, line)
            stack.callback(one.staging.close)
            one.run(state)
        except Refused as refused:
            raise listing.error(refused) from None
        except OSError as error:
            raise _disk(error, output) from None


def _disk(error: OSError, output: str) -> MachineError:
    is_full = error.errno in FULL
    return MachineError(
        f"the disk of '{output}' is full"
        if is_full
        else f"'{error.filename or output}' failed: {error.strerror or error}",
        fix=("make room, and " if is_full else "") + "run the same command again: it continues where it stopped",
    )


def _is_finished(folder: Folder, request: Request) -> bool:
    done = folder.manifest()
    if done is None:
        return False
    _refuse_other(done, request, folder.path)
    for shard in done["shards"]:
        folder.check(shard)
    rows = sum(shard["rows"] for shard in done["shards"])
    progress.say("data_fetch_done", f"'{folder.path}' is complete already: {rows:,} rows, see {MANIFEST}")
    return True


def _refuse_other(state: Mapping[str, Any] | None, request: Request, output: str) -> None:
    """Refuse a folder that another request began in."""
    if state is None:
        return
    if state.get("schema") != manifest.SCHEMA:
        raise RequestError(f"'{output}' was fetched by another version of primus-data", fix="name another folder")
    old, new = state.get("request") or {}, request.to_dict()
    if old.get("on_error") == "stop":  # no finished shard lacks a row
        old = {**old, "on_error": new["on_error"]}
    lines = [f"{name}: {old.get(name)!r} there, {now!r} now" for name, now in new.items() if old.get(name) != now]
    if lines:
        raise RequestError(
            f"folder '{output}' has another fetch",
            why="; ".join(lines),
            fix="name another --output-dir, or run that command again",
        )


class _Fetch:
    """One start of a fetch."""

    def __init__(
        self, request: Request, folder: Folder, client: Client, listing: Listing, workers: int, line: Progress
    ) -> None:
        self.request, self.folder, self.client, self.listing = request, folder, client, listing
        self.workers, self.line = workers, line
        self.sources = listing.sources
        self.staging = Staging(client, folder.downloads, workers)
        self.columns = Columns(request.columns, request.text_column, request.renamed)
        self.counts: dict[int, int] = {}
        self.wanted = extent.Bounds(0, None)
        self.total = max(sum(one.size for one in self.sources), 1)
        self.skipped: list[str] = []
        self.skips = 0
        self.read: dict[int, Mapping[str, Any]] = {}
        """The files that were read so far."""
        self.unsaved: list[Mapping[str, Any]] = []
        """Those of them that no finished shard tells of."""

    def run(self, state: Mapping[str, Any] | None) -> None:
        """Continue what `state` began, or begin."""
        began = time.monotonic()
        self._begin(state)
        done = self.folder.shards()
        next_name = self._name(len(done))
        self.folder.refuse_strangers({str(one["file"]) for one in done}, next_name)
        if done:
            self._resume(done)
            progress.say("data_fetch_resume", f"continuing after {counted(len(done), 'finished shard')}")
        if state:
            self._check_space(sum(one["bytes"] for one in done))
        if not (done and done[-1]["is_last"]):
            done = [*done, *self._write(done)]
        rows = sum(one["rows"] for one in done)
        if not rows:
            raise PrimusError(
                f"split '{self.request.split}' has no rows to write",
                why=f"{counted(self.skips, 'row')} skipped" if self.skips else "it is empty",
                fix="choose another --split",
            )
        read = [(self.sources[number], self.read[number]) for number in sorted(self.read)]
        skips = {"rows": self.skips, "first": self.skipped}
        self.folder.finish(manifest.of(self.request, self.listing, done, read, skips))
        total = f"{rows:,} rows in {counted(len(done), 'shard')} in {time_span(time.monotonic() - began)}"
        and_skipped = f"; {counted(self.skips, 'row')} skipped" if self.skips else ""
        progress.say("data_fetch_done", f"{total}{and_skipped}: {os.path.join(self.folder.path, MANIFEST)}")

    def _resume(self, done: Sequence[Mapping[str, Any]]) -> None:
        self.skips, self.skipped = done[-1]["skips"], list(done[-1]["skipped"])
        for one in (one for shard in done for one in shard["read"]):
            self.read[one["number"]] = one
            self.counts.setdefault(one["number"], one["rows"])

    def _begin(self, state: Mapping[str, Any] | None) -> None:
        found = [one.identity() for one in self.sources]
        if state:
            _refuse_changed(state["sources"], found)
            self.counts = {int(number): rows for number, rows in state["counts"].items()}
            self.wanted = extent.Bounds(*state["bounds"])
            return
        self.wanted, self.counts = extent.bounds(
            self.request.slice, self.request.num_samples, self.sources, self._open, self.workers, self._activity
        )
        if self.wanted.stop is not None and self.wanted.stop <= self.wanted.start:
            total = f"{sum(self.counts.values()):,} rows" if len(self.counts) == len(self.sources) else "no such rows"
            raise RequestError(f"split '{self.request.split}' is empty", why=f"it has {total}", fix="choose more of it")
        self.folder.refuse_strangers(set(), "")
        self._check_space(0)
        self.folder.begin(
            {
                "schema": manifest.SCHEMA,
                "request": self.request.to_dict(),
                "revision": self.listing.revision,
                "sources": found,
                "counts": self.counts,
                "bounds": self.wanted,
            }
        )

    def _activity(self, text: str) -> None:
        self.line.note = text

    def _check_space(self, written: int) -> None:
        self.line.note = "estimating sizes"
        if not self.sources or self.sources[0].size == 0:
            return
        first = self.sources[0]
        with closing(self._open(first)) as file:
            found = space.sample(first, _buffered(file, first), self.request.columns)
        shards = space.estimate(self.sources, self.wanted, found, self.request.compress)
        remote = sorted((one.size for one in self.sources if one.remote), reverse=True)
        downloads = sum(remote[: self.workers + 1]) if self._stages() else 0
        space.check(self.folder.path, max(shards - written, 0), downloads)

    def _stages(self) -> bool:
        """Whether whole files are downloaded."""
        ahead = self._known_pieces((0, 0))
        return not ahead or any(piece.is_whole for piece in ahead)

    def _known_pieces(self, begin: tuple[int, int]) -> list[extent.Piece]:
        """The pieces, if they are known before files are read; else nothing."""
        if self.wanted.is_all or len(self.counts) == len(self.sources):
            return list(extent.pieces(self.sources, self.counts, self.wanted, begin))
        known: list[extent.Piece] = []
        for piece in extent.pieces(self.sources, dict(self.counts), self.wanted, begin):
            if piece.number not in self.counts:
                break
            known.append(piece)
        return known

    def _open(self, source: Source) -> IO[bytes]:
        if source.remote and source.has_ranges:
            return cast("IO[bytes]", RemoteFile(self.client, source.remote))
        return open(self.staging.take(self.sources.index(source), source) if source.remote else source.path, "rb")

    def _name(self, number: int) -> str:
        return name_of(self.request.slice.split, number, self.request.compress)

    def _write(self, done: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Write the shards that are missing."""
        file, first, row = done[-1]["next"] if done else (0, 0, 0)
        number, shard = len(done), None
        try:
            for piece, line, fault, at in self._rows((file, first), row):
                self.line.note = ""
                if fault:
                    self._skip(fault)
                    continue
                shard = shard or Shard(os.path.join(self.folder.work, "shard.partial"), self.request.compress)
                shard.add(line)
                self.line.add(len(line), 1)
                if shard.size >= self.request.shard_size > 0:
                    yield self._finish(shard, number, (piece.number, piece.first, at), is_last=False)
                    number, shard = number + 1, None
            if shard:
                yield self._finish(shard, number, (len(self.sources), 0, 0), is_last=True)
        finally:
            if shard:
                shard.drop()

    def _finish(self, shard: Shard, number: int, begin: tuple[int, int, int], *, is_last: bool) -> Mapping[str, Any]:
        name = self._name(number)
        found = shard.finish(os.path.join(self.folder.path, name))
        skips = {"skips": self.skips, "skipped": self.skipped}
        state = {"next": begin, "is_last": is_last, "read": self.unsaved, **skips}
        self.folder.add({**found, **state})
        self.unsaved = []
        return {**found, **state}

    def _skip(self, fault: str) -> None:
        if self.request.on_error != "skip":
            raise PrimusError(fault, fix="repair the source, or skip such rows with --on-error skip")
        self.skips += 1
        if len(self.skipped) < _MOST_SHOWN:
            self.skipped.append(fault)
        if self.skips <= 3:
            progress.say("data_fetch_skipped", f"skipped: {fault}")

    def _rows(self, begin: tuple[int, int], row: int) -> Iterator[tuple[extent.Piece, bytes, str, int]]:
        """The rows from row `row` of the file `begin` on: with the number of the next row in their file."""
        known = self._known_pieces(begin)
        before = sum(one.size for one in self.sources[: begin[0]])
        for index, piece in enumerate(extent.pieces(self.sources, self.counts, self.wanted, begin)):
            source = self.sources[piece.number]
            ahead = (one.number for one in known[index : index + self.workers + 1] if one.is_whole)
            self.staging.ahead((one, self.sources[one]) for one in ahead if self.sources[one].remote)
            reading = Reading(source.path, source.format, self.columns, source.size)
            at = max(piece.start, row if piece.number == begin[0] else 0)
            with closing(self._file(source, piece)) as file:
                for found in reading.rows(_buffered(file, source), at, piece.stop):
                    at += 1
                    self.line.reach(self._share(piece, at, (before + reading.share * source.size) / self.total))
                    self.line.received = self.client.received
                    yield piece, found.line, found.fault, at
            self._check_same(source)
            self._has_read(piece, at)
            self.staging.drop(piece.number)
            before += source.size

    def _has_read(self, piece: extent.Piece, rows: int) -> None:
        self.counts.setdefault(piece.number, rows)
        one = {"number": piece.number, "rows": rows, "is_whole": piece.is_whole}
        self.read[piece.number] = one
        self.unsaved.append(one)

    def _share(self, piece: extent.Piece, at: int, by_size: float) -> float:
        """How much is done: by rows if their number is known, else by bytes."""
        if self.wanted.stop is None:
            return by_size
        return (piece.first + at - self.wanted.start) / max(self.wanted.stop - self.wanted.start, 1)

    def _file(self, source: Source, piece: extent.Piece) -> IO[bytes]:
        if not (source.remote and piece.is_whole):
            return self._open(source)
        self.line.note = f"downloading {source.path}"
        return open(self.staging.take(piece.number, source), "rb")

    def _check_same(self, source: Source) -> None:
        if source.remote:
            return
        found = os.stat(source.path)
        if (found.st_size, f"{found.st_mtime_ns}") != (source.size, source.mark):
            raise PrimusError(f"{source.path} was changed while it was read", fix="fetch it into another folder")


def _refuse_changed(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> None:
    """Refuse sources that are not those of the first start."""
    if list(old) == list(new):
        return
    before, now = ({one["path"]: one for one in some} for some in (old, new))
    changed = [path for path in before if now.get(path) != before[path]] + [path for path in now if path not in before]
    raise RequestError(
        f"the source has changed since this fetch began: {changed[0] if changed else 'the order of its files'}",
        why=f"{counted(max(len(changed), 1), 'file')} of {len(before)} changed, came or went",
        fix="name another --output-dir",
    )


def _buffered(file: IO[bytes], source: Source) -> IO[bytes]:
    """A remote file that is read in order, in large parts; parquet asks for what it needs."""
    if source.format.kind == "parquet" or not isinstance(file, io.RawIOBase):
        return file
    return cast("IO[bytes]", io.BufferedReader(file, _BUFFER))
