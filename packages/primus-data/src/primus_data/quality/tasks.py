"""One task of a stage, as a worker does it: it writes its files, and returns what the report says of it."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from primus_core.errors import PrimusError
from primus_data.quality import library, texts
from primus_data.quality.pipeline import Pipeline
from primus_data.quality.stages import Stage
from primus_data.quality.tally import Tally
from primus_data.quality.texts import Record
from primus_data.sources.files import File
from primus_data.sources.parts import Part

__all__ = ["Job", "do"]


@dataclass(frozen=True)
class Job:
    """What all tasks share."""

    pipeline: Pipeline
    files: tuple[File, ...]
    parts: tuple[Part, ...]
    """Files, or ranges of a large one."""
    folder: str
    """Of the unfinished work."""
    skips: bool = False
    """Lines that are no documents are counted, instead of ending it."""

    def place(self, part: int, line: int) -> str:
        """Where a document of a part comes from."""
        return f"{self.files[self.parts[part].first].path}:{line}"

    def documents(self, stage: str, part: int) -> str:
        """Where a pass leaves the documents of a part."""
        return f"{self.folder}/{stage}/{part:05d}.jsonl"

    def line_numbers(self, stage: str, part: int) -> str:
        """Where it leaves their lines in the input: so the report can name the twin of a document."""
        return f"{self.folder}/{stage}/{part:05d}.lines"

    def output(self, part: int) -> str:
        """Where the last pass leaves what is kept."""
        return f"{self.folder}/output/{part:05d}.jsonl.gz"

    def step_folder(self, step: int) -> str:
        """Of the index or the signatures of a step."""
        return f"{self.folder}/{step + 1:02d}-data"


def do(job: Job, stage: Stage, number: int) -> dict[str, Any]:
    """Do the task.

    Raises:
        PrimusError: it cannot be done.
    """
    return _KINDS[stage.kind](job, stage, number)


def _index(job: Job, stage: Stage, number: int) -> dict[str, Any]:
    from primus_data.quality import evaluations

    values = job.pipeline.steps[stage.step].values
    return {"evaluations": evaluations.index(values, job.step_folder(stage.step))}


def _dedup(job: Job, stage: Stage, number: int) -> dict[str, Any]:
    from primus_data.quality import duplicates

    folder, values = job.step_folder(stage.step), job.pipeline.steps[stage.step].values
    os.makedirs(folder, exist_ok=True)
    with library.quiet():
        if stage.kind == "exact_signatures":
            duplicates.exact_signatures(_texts(job, stage, number), folder, number)
        elif stage.kind == "exact_find":
            duplicates.exact_find(folder, len(job.parts))
        elif stage.kind == "near_signatures":
            duplicates.near_signatures(_texts(job, stage, number), folder, number, values)
        elif stage.kind == "near_buckets":
            duplicates.near_buckets(folder, number, values)
        else:
            duplicates.near_cluster(folder, len(job.parts), values)
    return {}


def _texts(job: Job, stage: Stage, part: int) -> Iterator[str]:
    for record in texts.between(job.documents(stage.source, part)):
        yield texts.parsed(record.data, job.pipeline.text, job.place(part, record.line))[1]


def _pass(job: Job, stage: Stage, part: int) -> dict[str, Any]:
    """All documents of a part through the steps of a pass."""
    walk = _Walk(job, stage, part)
    path = job.output(part) if stage.is_last else job.documents(stage.name, part)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    lines = array("Q")
    with texts.written(path, is_output=stage.is_last) as write:
        for record in walk.kept():
            write(record)
            lines.append(record.line)
    if not stage.is_last:
        with open(job.line_numbers(stage.name, part), "wb") as file:
            lines.tofile(file)
    return walk.report()


class _Walk:
    """The documents of one part, and what becomes of them in one pass."""

    def __init__(self, job: Job, stage: Stage, part: int) -> None:
        self.job, self.stage, self.part = job, stage, part
        steps = job.pipeline.steps
        numbers = ((stage.step,) if stage.step >= 0 else ()) + stage.steps
        self.tallies = {number: Tally(job.pipeline.samples) for number in numbers}
        self.unread = Tally(job.pipeline.samples)
        judges = library.chain([(number, steps[number]) for number in stage.steps], job.step_folder)
        self.judges = list(zip(stage.steps, judges, strict=True))

    def report(self) -> dict[str, Any]:
        """What the report needs of it."""
        found = {"steps": {str(number): tally.data() for number, tally in self.tallies.items()}}
        return found if self.stage.source else {**found, "read": self.unread.data()}

    def kept(self) -> Iterator[Record]:
        """The records that stay."""
        twins = self._twins() if self.stage.step >= 0 else {}
        for number, (record, data, text) in enumerate(self._read()):
            if self.stage.step >= 0:
                self.tallies[self.stage.step].came(text)
            if number in twins:
                twin = {"same_as": self._place(*twins[number])}
                self.tallies[self.stage.step].remove(text, "duplicate", self._where(record), twin)
                continue
            if (after := self._judged(text, record)) is not None:
                is_same = after == text
                yield record if is_same else Record(record.line, texts.rewritten(data, self.job.pipeline.text, after))

    def _read(self) -> Iterator[tuple[Record, dict[str, Any], str]]:
        source, key = self.stage.source, self.job.pipeline.text
        for record in texts.between(self.job.documents(source, self.part)) if source else self._input():
            try:
                data, text = texts.parsed(record.data, key, self._where(record))
            except PrimusError as error:
                if not self.job.skips:
                    raise
                reason = error.what.removeprefix(f"{self._where(record)}: ")
                shown = record.data[:2000].decode(errors="replace")
                self.unread.came(shown)
                self.unread.remove(shown, reason, self._where(record), {})
                continue
            if not source:
                self.unread.came(text)
            yield record, data, text

    def _input(self) -> Iterator[Record]:
        part = self.job.parts[self.part]
        return texts.lines(self.job.files[part.first], part.start, part.end)

    def _judged(self, text: str, record: Record) -> str | None:
        """The text after all steps; None: one of them removes it."""
        for number, judge in self.judges:
            tally = self.tallies[number]
            tally.came(text)
            verdict = self._asked(judge, number, text, record)
            if verdict.reason:
                tally.remove(text, verdict.reason, self._where(record), verdict.detail)
                return None
            if verdict.text != text:
                tally.edit(text, verdict.text, verdict.edits, self._where(record))
                text = verdict.text
        return text

    def _asked(self, judge: library.Judge, number: int, text: str, record: Record) -> library.Verdict:
        name = self.job.pipeline.steps[number].name
        try:
            return judge(text)
        except (PrimusError, OSError, MemoryError):
            raise
        except Exception as error:  # whatever a step of the library raises
            why = f"{type(error).__name__}: {error}"
            fix = "remove this document, or the step; and report it to those who maintain the step"
            raise PrimusError(
                f"{self._where(record)}: step {name} failed on this document", why=why, fix=fix
            ) from error

    def _twins(self) -> Mapping[int, tuple[int, int]]:
        from primus_data.quality import duplicates

        return duplicates.twins(self.job.step_folder(self.stage.step), self.part)

    def _where(self, record: Record) -> str:
        return self.job.place(self.part, record.line)

    def _place(self, part: int, number: int) -> str:
        """Where the document came from that a pass has numbered so."""
        with open(self.job.line_numbers(self.stage.source, part), "rb") as file:
            file.seek(8 * number)
            line = array("Q", file.read(8))[0]
        return self.job.place(part, line)


_KINDS: Mapping[str, Callable[[Job, Stage, int], dict[str, Any]]] = {
    "index": _index,
    "pass": _pass,
    "exact_signatures": _dedup,
    "exact_find": _dedup,
    "near_signatures": _dedup,
    "near_buckets": _dedup,
    "near_cluster": _dedup,
}
