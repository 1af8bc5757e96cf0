"""The hidden folder beside the output that holds an unfinished preparation.

.corpus.preparing/
  plan.json               what is prepared; nothing else continues it
  1f0c96ab/               where it is prepared: of this plan alone
    claims/               which node works on what
    000000/ 000001/ …     finished parts, each with the files of every key
    *.partial             what is being written

Somebody may discard a preparation while a node works on it, and begin another one in its place. The node then finds its
own folder gone, and puts no part of its plan among those of the other.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from primus_core.errors import PrimusError, RequestError
from primus_data.preparing.claims import Claims
from primus_machine.files import plain_json, trust
from primus_machine.files.atomic import PRIVATE_FOLDER, create_whole, read_regular, staged
from primus_machine.host import HostRoot

__all__ = ["Finished", "Folder", "path_for"]

_PLAN, _PART, _CLAIMS = "plan.json", "part.json", "claims"
_PARTIAL, _REMOVED = ".partial", ".removed"


class Finished(NamedTuple):
    """What is known of a finished part."""

    documents: int
    tokens: int
    skipped: int
    lines: int


def path_for(prefix: str) -> str:
    """The folder of the preparation of a prefix."""
    where, name = os.path.split(os.path.abspath(prefix))
    return os.path.join(where, f".{name}.preparing")


class Folder:
    """The folder at `path`."""

    def __init__(self, path: str, host: HostRoot) -> None:
        self.path, self.host = path, host
        self.work = ""
        """Where it is prepared, once it is opened."""
        self._claims_in: dict[str, Claims] = {}
        """Those of others: whether they still live shows in time."""

    @property
    def claims(self) -> str:
        """Where claims are."""
        return f"{self.work}/{_CLAIMS}"

    def open(self, outcome: Mapping[str, Any], part_size: int, run: str) -> tuple[int, bool]:
        """Make it, or continue what is in it. The size of its parts, and whether it is new. `run`: who makes it.

        Raises:
            RequestError: it is another user's, or of another preparation.
            OSError: it cannot be written.
        """
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(self.path, PRIVATE_FOLDER)
        self._believe()
        is_new = not os.path.lexists(f"{self.path}/{_PLAN}") and self._begin(outcome, part_size, run)
        found = self._plan()
        if found.get("outcome") != dict(outcome):
            if self._is_of_use():
                raise self._other(found.get("outcome"), outcome)
            self.remove()  # it came to nothing
            return self.open(outcome, part_size, run)
        self.work = f"{self.path}/{found['work']}"
        if not os.path.isdir(self.work) and self._plan() == found:  # removed by hand
            self.remove()
            return self.open(outcome, part_size, run)
        return int(found["part_size"]), is_new

    def _begin(self, outcome: Mapping[str, Any], part_size: int, run: str) -> bool:
        """Make a plan, unless another node is faster. Its folders are there before it."""
        name = os.urandom(4).hex()
        for folder in (work := f"{self.path}/{name}", f"{work}/{_CLAIMS}"):
            os.mkdir(folder, PRIVATE_FOLDER)
        plan = {"outcome": outcome, "part_size": part_size, "run": run, "work": name}
        is_new = create_whole(f"{self.path}/{_PLAN}", json.dumps(plan, indent=1))
        if not is_new:
            self.drop(work)
        return is_new

    def _is_of_use(self) -> bool:
        """Whether a finished part has a document, or any may be finished soon."""
        parts = glob.glob(f"{glob.escape(self.path)}/*/*/{_PART}")
        return any(map(_has_document, parts)) or self.is_in_use()

    def is_in_use(self) -> bool:
        """Whether a process works in it that may still live."""
        folders = glob.glob(f"{glob.escape(self.path)}/*/{_CLAIMS}")
        return not all(self._claims_in.setdefault(one, Claims(one, self.host)).are_dead() for one in folders)

    def _believe(self) -> None:
        """Refuse a folder of somebody else's, who could put any tokens into it.

        Raises:
            RequestError: it is one.
        """
        if why := self._doubt():
            fix = "remove it, or choose another --output-prefix"
            raise RequestError(f"the unfinished preparation in {self.path} is not trusted", why=why, fix=fix)

    def _doubt(self) -> str:
        return "it is a link" if os.path.islink(self.path) else trust.of(self.host.environ).doubt(self.path)

    def _plan(self) -> Mapping[str, Any]:
        found: object = None
        with suppress(ValueError, FileNotFoundError):
            found = plain_json.loads(read_regular(f"{self.path}/{_PLAN}"))
        if not isinstance(found, dict) or not isinstance(found.get("part_size"), int):
            return {}
        return found if str(found.get("work")).isalnum() else {}

    def holds(self, outcome: Mapping[str, Any]) -> bool:
        """Whether it is there, the person's own, and of this preparation."""
        return not self._doubt() and self._plan().get("outcome") == dict(outcome)

    def is_of(self, run: str) -> bool:
        """Whether this very run has made it."""
        return bool(run) and self._plan().get("run") == run

    def _other(self, there: object, wanted: Mapping[str, Any]) -> RequestError:
        known = there if isinstance(there, dict) else {}
        differs = [name for name in wanted if known.get(name) != wanted[name]]
        why = "\n".join(f"{name}: there {_shown(known.get(name))}, now {_shown(wanted[name])}" for name in differs)
        return RequestError(
            f"{self.path} holds an unfinished preparation of something else",
            why=why or "it cannot be read",
            fix="run its command to finish it, or discard it: --discard-unfinished",
        )

    def finished(self) -> set[int]:
        """The numbers of the parts that are finished.

        Raises:
            OSError: the folder is gone.
        """
        return _finished(self.work)

    def part(self, number: int) -> str:
        """The folder of a part."""
        return f"{self.work}/{number:06d}"

    def begin(self, name: str) -> str:
        """A new folder to write into, of this process alone. What an earlier owner of the claim left is removed.

        Raises:
            OSError: it cannot be made.
        """
        for left in os.listdir(self.work):
            if left.startswith(f"{name}.") and left.endswith(_PARTIAL):
                self.drop(f"{self.work}/{left}")
        stage = staged(f"{self.work}/{name}")
        os.mkdir(stage, PRIVATE_FOLDER)
        return stage

    def finish(self, number: int, stage: str, found: Finished) -> None:
        """Keep a part that is whole. Where another node has been faster, it has the same.

        Raises:
            OSError: it cannot be written.
        """
        with open(f"{stage}/{_PART}", "x", encoding="utf-8") as file:
            file.write(json.dumps(found._asdict()))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.rename(stage, self.part(number))
        except OSError:
            if not os.path.isdir(self.part(number)):
                raise
            self.drop(stage)

    def drop(self, stage: str) -> None:
        """Remove what is not to be finished."""
        shutil.rmtree(stage, ignore_errors=True)

    def read(self, number: int) -> Finished:
        """What is known of a finished part.

        Raises:
            PrimusError: it is damaged.
            OSError: it cannot be read.
        """
        try:
            found = plain_json.loads(read_regular(f"{self.part(number)}/{_PART}"))
            return Finished(**{name: int(found[name]) for name in Finished._fields})
        except (ValueError, KeyError, TypeError):
            fix = "remove this folder, and run the command again"
            raise PrimusError(f"the part in {self.part(number)} is damaged", fix=fix) from None

    def remove_own(self) -> None:
        """Remove it, unless another one is in its place by now."""
        if os.path.isdir(self.work):
            self.remove()

    def remove_useless(self) -> None:
        """Remove it if it has no document and nobody works in it."""
        if self.work and not self._is_of_use():
            self.remove_own()

    def clear_removed(self) -> None:
        """Remove what is left of folders whose removal was interrupted."""
        where, name = os.path.split(self.path)
        with suppress(FileNotFoundError):
            for left in os.listdir(where):
                if left.startswith(f"{name}{_REMOVED}."):
                    self.drop(f"{where}/{left}")

    def remove(self) -> None:
        """Remove all of it, at once for whoever looks."""
        aside = staged(f"{self.path}{_REMOVED}")
        with suppress(FileNotFoundError):
            os.rename(self.path, aside)
            self.drop(aside)


def _finished(work: str) -> set[int]:
    return {int(name) for name in os.listdir(work) if name.isascii() and name.isdecimal()}


def _has_document(path: str) -> bool:
    """Whether a finished part has one. What cannot be read may have."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return bool(plain_json.loads(read_regular(path))["documents"])
    return True


def _shown(value: object) -> str:
    return json.dumps(value)[:120]
