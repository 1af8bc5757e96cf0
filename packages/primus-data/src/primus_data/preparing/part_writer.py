"""Prepares one part: reads its documents, encodes them, and keeps the result as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain, islice

from primus_data.indexed import layout
from primus_data.indexed.writer import IndexedWriter
from primus_data.preparing.encoding import Encoder
from primus_data.preparing.folder import Finished, Folder
from primus_data.preparing.settings import Settings
from primus_data.progress import Progress
from primus_data.sources import documents, lines
from primus_data.sources.documents import Documents, Fault
from primus_data.sources.files import File
from primus_data.sources.parts import Part, divide, usual_size
from primus_machine.text import printable

__all__ = ["SKIPPED", "PartWriter", "place"]

SKIPPED = "skipped.log"
"""The file of a part that lists what is no document."""
_MOST_LOOKED_AT = 8
"""Parts in which a document is looked for that could stay if others were skipped."""


class PartWriter:
    """Prepares parts of `files`, one after the other."""

    def __init__(self, settings: Settings, files: Sequence[File], encoder: Encoder, folder: Folder) -> None:
        self.settings, self.files, self.encoder, self.folder = settings, files, encoder, folder

    def write(self, number: int, part: Part, progress: Progress) -> None:
        """Prepare a part.

        Raises:
            PrimusError: the input is wrong, and shall stop it.
            OSError: the result cannot be written.
        """
        stage = self.folder.begin(f"{number:06d}")
        try:
            self.folder.finish(number, stage, self._write(part, stage, progress))
        except BaseException as error:  # Ctrl-C, too
            if isinstance(error, FileNotFoundError) and not os.path.isdir(stage) and os.path.isdir(self.folder.work):
                return  # another node took this one for dead, and has taken over
            self.folder.drop(stage)
            raise

    def _write(self, part: Part, stage: str, progress: Progress) -> Finished:
        code = layout.type_for(self.encoder.tokenizer.vocab_size)
        skipped = lines_before = 0
        with ExitStack() as stack:
            writers = [
                stack.enter_context(IndexedWriter(f"{stage}/{number}", code))
                for number in range(len(self.settings.keys))
            ]
            faults = stack.enter_context(open(f"{stage}/{SKIPPED}", "x", encoding="utf-8"))
            for found in documents.read(part, self.files, self.settings.keys):
                self._stop_at(part, found, writers[0].documents)
                faults.writelines(f"{json.dumps(fault)}\n" for fault in found.faults)
                for writer, texts in zip(writers, found.texts, strict=True):
                    writer.add(*self.encoder.encode(texts))
                skipped += len(found.faults)
                lines_before += found.lines
                progress.add(found.size, len(found.texts[0]))
                del found, texts  # a block less in memory while the next one is read
        return Finished(writers[0].documents, sum(one.tokens for one in writers), skipped, lines_before)

    def _stop_at(self, part: Part, found: Documents, documents_before: int) -> None:
        if found.faults and self.settings.on_error == "stop":
            fault = found.faults[0]
            before = lines.count(self.files[part.first], part.start) if part.kind == "lines" else 0
            has_others = bool(documents_before or found.texts[0]) or self._begins_with_documents()
            raise documents.refused(place(fault, before), fault, has_others=has_others)

    def _begins_with_documents(self) -> bool:
        """Whether one of the first parts begins with documents that have the keys."""
        parts = islice(divide(self.files, usual_size(0)), _MOST_LOOKED_AT)
        beginnings = (islice(documents.read(part, self.files, self.settings.keys), 1) for part in parts)
        return any(found.texts[0] for found in chain.from_iterable(beginnings))


def place(fault: Fault, before: int) -> str:
    """`file:line`, where so many lines of the file come before the part."""
    return printable(fault.path) + (f":{fault.number + before}" if fault.number else "")
