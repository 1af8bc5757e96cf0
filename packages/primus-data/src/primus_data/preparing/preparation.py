"""One node's share of a preparation: parts that nobody else works on, then the join, which one node does for all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from primus_core.errors import MachineError, PrimusError, RequestError
from primus_data.contract import Here
from primus_data.preparing import outputs, space
from primus_data.preparing.claims import SILENT_S, Claims
from primus_data.preparing.failures import Failures
from primus_data.preparing.finish import Result, finish
from primus_data.preparing.folder import Folder, path_for
from primus_data.preparing.given import Given
from primus_data.preparing.part_writer import PartWriter
from primus_data.progress import Progress
from primus_data.sources.parts import Part, divide, usual_size
from primus_machine.files.atomic import FULL
from primus_machine.host import HostRoot

__all__ = ["Preparation"]

_JOIN = "join"
_LOOK_EVERY_S = 0.5


class Preparation:
    """The share of the node `here`."""

    def __init__(self, given: Given, here: Here, host: HostRoot) -> None:
        self.given, self.here, self.host = given, here, host
        self.settings = given.settings
        self.folder = Folder(path_for(given.settings.prefix), host)
        self.parts: list[Part] = []

    def run(self) -> Result | None:
        """Do it, with the others; None: another node has joined it, or it had been prepared before.

        Raises:
            PrimusError: it cannot be done.
        """
        try:
            return self._run()
        except OSError as error:
            if self._is_done():  # another node was faster, and has removed the folder
                return None
            if isinstance(error, FileNotFoundError) and not os.path.isdir(self.folder.work):
                raise _discarded(self.folder.path) from None
            raise _unwritable(error, self.folder.path) from None

    def _run(self) -> Result | None:
        self.folder.clear_removed()
        if not self._is_done():
            try:
                return self._shared() if self._open() else None
            except PrimusError:
                if self.here.nodes < 2:  # other nodes read there why this one failed
                    self.folder.remove_useless()
                raise
        if self.folder.holds(self.given.outcome):  # it was killed between its last two steps
            self.folder.remove()
        return None

    def _is_done(self) -> bool:
        """Whether the output is there. If it shall be replaced: by this run, or by who shares its folder."""
        by = tuple(filter(None, (self.here.run_dir, self.folder.work))) if self.settings.overwrites else ()
        if self.settings.overwrites and not by:
            return False
        return outputs.are_done(self.settings.outputs, self.given.fingerprint, by)

    def _open(self) -> bool:
        """Begin, or continue what was begun. False: it is done."""
        settings, total = self.settings, sum(file.size for file in self.given.files)
        if settings.discards_unfinished:
            self._discard()
        if not settings.overwrites:
            outputs.refuse_others(settings.outputs, self.given.fingerprint)
        wanted = max(1, -(-total // settings.partitions)) if settings.partitions else usual_size(total)
        size, is_new = self.folder.open(self.given.outcome, wanted, self.here.run_dir)
        if is_new and self._is_done():  # between the first look and now
            self.folder.remove_own()
            return False
        self.parts = list(divide(self.given.files, size))
        done = len(self.folder.finished()) / max(len(self.parts), 1)
        vocab_size = self.given.encoder.tokenizer.vocab_size
        space.check(self.given.files, settings.folder, vocab_size, len(settings.keys), done)
        return True

    def _discard(self) -> None:
        """Discard what an earlier run left: node 0 does it, and the others wait for its new folder."""
        patience = Patience(self.settings.wait_s)
        while not self.folder.is_of(self.here.run_dir):
            if not self.here.node_rank:
                self._expect_unused()
                self.folder.remove()
                return
            patience.wait(0, "waiting for node 0, which discards the unfinished preparation")

    def _expect_unused(self) -> None:
        """Refuse to discard what a process works on. Whether one on another host lives shows in time."""
        end = time.monotonic() + SILENT_S + 2 * _LOOK_EVERY_S
        while self.folder.is_in_use():
            if time.monotonic() > end:
                what = f"another process works on the unfinished preparation in {self.folder.path}"
                raise RequestError(what, fix="wait until it ends, or stop it, and run the command again")
            time.sleep(_LOOK_EVERY_S)

    def _shared(self) -> Result | None:
        with (
            Claims(self.folder.claims, self.host) as claims,
            Progress("prepare", self._size(range(len(self.parts)))) as progress,
        ):
            failures = Failures(self.folder.work, self.here.node_rank)
            progress.start_at(self._size(self.folder.finished()))
            for number in self._mine(claims, failures, progress):
                with failures.told():
                    self._write(number, progress)
                claims.release(f"{number:06d}")
            return self._joined(claims, failures, progress)

    def _size(self, numbers: Iterable[int]) -> int:
        return sum(self.parts[number].size for number in numbers)

    def _write(self, number: int, progress: Progress) -> None:
        writer = PartWriter(self.settings, self.given.files, self.given.encoder, self.folder)
        writer.write(number, self.parts[number], progress)

    def _mine(self, claims: Claims, failures: Failures, progress: Progress) -> Iterator[int]:
        """The parts to prepare here, until all are finished. Each node begins elsewhere."""
        count = len(self.parts)
        start = self.here.node_rank * count // max(self.here.nodes, 1)
        order = [*range(start, count), *range(start)]
        patience, own = Patience(self.settings.wait_s), set[int]()
        while left := _without(order, finished := self.folder.finished()):
            failures.look()
            progress.others = self._size(finished - own)
            number = next((one for one in left if claims.take(f"{one:06d}")), None)
            if number is None:
                progress.note = f"waiting for {_nodes(claims, left)}, which has {len(left)} of {count} parts"
                patience.wait(len(left), progress.note)
            elif number in self.folder.finished():  # since the look before
                claims.release(f"{number:06d}")
            else:
                progress.note = ""
                yield number
                own.add(number)

    def _joined(self, claims: Claims, failures: Failures, progress: Progress) -> Result | None:
        patience = Patience(self.settings.wait_s)
        while not claims.take(_JOIN):
            failures.look()
            progress.note = f"waiting for {claims.owner(_JOIN) or 'another node'}, which joins the parts"
            patience.wait(0, progress.note)
            if self._is_done():
                return None
        if self._is_done():
            return None
        with failures.told():
            return finish(self.given, self.parts, self.folder, self.here, progress)


class Patience:
    """Waits for other nodes, until nothing has changed for a time."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s, self.state, self.since = limit_s, -1, time.monotonic()

    def wait(self, state: int, what: str) -> None:
        """Wait a moment. `state`: how it stands; a new one renews the patience.

        Raises:
            PrimusError: the time is over.
        """
        now = time.monotonic()
        if state != self.state:
            self.state, self.since = state, now
        if now - self.since > self.limit_s:
            fix = "look at that node; run the same command again: finished parts are kept. --wait changes the limit"
            raise PrimusError(f"{what}: for {self.limit_s:.0f} s without progress", fix=fix)
        time.sleep(_LOOK_EVERY_S)


def _without(order: Sequence[int], finished: AbstractSet[int]) -> list[int]:
    return [one for one in order if one not in finished]


def _nodes(claims: Claims, left: Sequence[int]) -> str:
    names = (claims.owner(f"{number:06d}") for number in left[:100])
    return ", ".join(dict.fromkeys(filter(None, names))) or "another node"


def _discarded(path: str) -> PrimusError:
    return PrimusError(
        f"the preparation in {path} is no longer there",
        why="another node has finished it, or another command has discarded it",
        fix="run one command at a time for an output, and this one again",
    )


def _unwritable(error: OSError, path: str) -> MachineError:
    where = str(error.filename or path)
    if error.errno in FULL:
        fix = "free some space, and run the same command again: finished parts are kept"
        return MachineError(f"no space is left on the disk of '{os.path.dirname(path)}'", why=where, fix=fix)
    return MachineError(f"'{where}' cannot be written", why=str(error.strerror or error), fix="check the folder")
