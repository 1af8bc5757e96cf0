"""The last step: joins the parts of each key to its final files, and says what was prepared."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from primus_core.errors import PrimusError
from primus_data.contract import Here
from primus_data.indexed.joined import join
from primus_data.preparing import outputs
from primus_data.preparing.folder import Finished, Folder
from primus_data.preparing.given import Given
from primus_data.preparing.part_writer import SKIPPED, place
from primus_data.progress import Progress
from primus_data.sources.documents import Fault, refused
from primus_data.sources.parts import Part
from primus_machine.packages import version_of
from primus_machine.units import counted

__all__ = ["Result", "finish"]

_JOINED = "joined"
_MOST_LISTED, _MOST_SHOWN = 100, 5
"""Of inputs beside the output, and of what was skipped on the console."""


class Result(NamedTuple):
    """What was prepared."""

    documents: int
    tokens: int
    skipped: int
    first_skipped: tuple[str, ...]
    """Some of them, with file and line."""
    skipped_file: str
    seconds: float


def finish(given: Given, parts: Sequence[Part], folder: Folder, here: Here, progress: Progress) -> Result:
    """Join the parts, and remove them.

    Raises:
        PrimusError: there is no document, or a part is damaged.
        OSError: the output cannot be written.
    """
    progress.note = "joining the parts"
    found = [folder.read(number) for number in range(len(parts))]
    result = Result(*_sums(found), (), "", progress.seconds)
    if not result.documents:
        why = f"{counted(result.skipped, 'line')} skipped" if result.skipped else ""
        raise PrimusError("the input has no document", why=why, fix="check the input")
    _stop_at_first(given, parts, found, folder)
    stage = folder.begin(_JOINED)
    if first := _list_skipped(parts, found, folder, f"{stage}/{SKIPPED}"):
        result = result._replace(first_skipped=first, skipped_file=f"{given.settings.prefix}_{SKIPPED}")
    outputs_of = {prefix: f"{stage}/{number}" for number, prefix in enumerate(given.settings.outputs)}
    for number, written in enumerate(outputs_of.values()):
        join([f"{folder.part(part)}/{number}" for part in range(len(parts))], written)
    if result.skipped_file:
        os.replace(f"{stage}/{SKIPPED}", result.skipped_file)
    for prefix, written in outputs_of.items():
        outputs.put(written, prefix, _known(given, result, here, folder, written))
    folder.remove_own()
    return result


def _stop_at_first(given: Given, parts: Sequence[Part], found: Sequence[Finished], folder: Folder) -> None:
    """Stop, where an earlier command has skipped something that shall not be skipped any more."""
    if given.settings.on_error == "stop":
        for where, fault in _skipped(parts, found, folder):
            raise refused(where, fault)


def _sums(found: list[Finished]) -> tuple[int, int, int]:
    return (
        sum(part.documents for part in found),
        sum(part.tokens for part in found),
        sum(part.skipped for part in found),
    )


def _list_skipped(parts: Sequence[Part], found: Sequence[Finished], folder: Folder, path: str) -> tuple[str, ...]:
    """Write down all that was skipped, with the lines of whole files; the first of them."""
    first = list[str]()
    with open(path, "x", encoding="utf-8") as file:
        for where, fault in _skipped(parts, found, folder):
            file.write(json.dumps({"where": where, "why": fault.what}) + "\n")
            if len(first) < _MOST_SHOWN:
                first.append(f"{where}: {fault.what}")
    return tuple(first)


def _skipped(parts: Sequence[Part], found: Sequence[Finished], folder: Folder) -> Iterator[tuple[str, Fault]]:
    before = 0
    for number, (part, known) in enumerate(zip(parts, found, strict=True)):
        before *= part.kind == "lines" and part.start > 0
        if known.skipped:
            with open(f"{folder.part(number)}/{SKIPPED}", encoding="utf-8") as file:
                for line in file:
                    fault = Fault(*json.loads(line))
                    yield place(fault, before), fault
        before += known.lines


def _known(given: Given, result: Result, here: Here, folder: Folder, written: str) -> dict[str, Any]:
    """What lies beside an output."""
    tokens = os.path.getsize(f"{written}.bin")
    return {
        "fingerprint": given.fingerprint,
        "outcome": given.outcome,
        "documents": result.documents,
        "skipped": result.skipped,
        "bytes": tokens,
        "tokenizer": {
            "type": given.settings.tokenizer_type,
            "model": given.settings.tokenizer_model,
            "vocab_size": given.encoder.tokenizer.vocab_size,
        },
        "inputs": [{"path": file.path, "bytes": file.size} for file in given.files[:_MOST_LISTED]],
        "encoded_by": given.encoder.tokenizer.name,
        "versions": {"primus-data": version_of("primus-data")},
        "run": here.run_dir,
        "work": folder.work,
    }
