"""The documents of a part: their texts, and what is no document, with its line."""

from __future__ import annotations

import json
import os
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import orjson

from primus_core.errors import PrimusError
from primus_data.sources import lines
from primus_data.sources.files import KINDS, File, changed, unreadable
from primus_data.sources.parts import Part
from primus_machine.files import plain_json
from primus_machine.text import printable

__all__ = ["Documents", "Fault", "Text", "read", "refused"]

Text = str | list[str]
"""A text; or its sentences, where the input has them apart."""
_MOST_SHOWN = 60
_MOST_ROWS = 1 << 13
"""Short documents take more memory than their text does."""
_READ_AS_LINES = "a text of its own is named *.txt: this file is read as JSON lines\nor "
_READ_AS_TEXT = "move it out of the folder, each file of which is read as a text in UTF-8\nor "


class Fault(NamedTuple):
    """Something in the input that is no document."""

    path: str
    number: int
    """The line of a part of JSON lines, the row of a parquet file, both from 1; 0: the whole file."""
    what: str
    keys: Sequence[str] | None = None
    """Those that the document has, where the one of its text is missing."""


class _NoKey(NamedTuple):
    what: str
    keys: Sequence[str]


class Documents(NamedTuple):
    """Some documents in a row."""

    texts: tuple[list[Text], ...]
    """For each key, the text of each document."""
    faults: list[Fault]
    size: int
    """Bytes of input that were read for them."""
    lines: int
    """Lines of input, with those that are no document."""


def read(part: Part, files: Sequence[File], keys: Sequence[str]) -> Iterator[Documents]:
    """The documents of a part, some megabytes at a time.

    Raises:
        PrimusError: a file has changed since it was found, is no longer there, or cannot be read.
    """
    if part.kind == "text":
        yield from _texts(files[part.first : part.first + part.files], len(keys))
        return
    file = files[part.first]
    if part.kind == "parquet":
        yield from _rows(part, file, keys)
        return
    with _Opened(file) as opened:
        is_first = part.start == 0
        ranges = lines.plain(opened, part.start, part.end) if part.kind == "lines" else None
        before = 0
        for rows, size in ranges or lines.compressed(opened, part.kind):
            if is_first:
                rows[0] = rows[0].removeprefix(BOM_UTF8)
            is_first = False
            while rows:
                some = rows[:_MOST_ROWS]
                del rows[:_MOST_ROWS]  # while they are encoded, nobody else has them
                found = _parsed(some, keys, file.path, before)
                before += found.lines
                del some
                yield found._replace(size=size if not rows else 0)


class _Opened:
    """A file that is what was found, before and after it is read."""

    def __init__(self, file: File) -> None:
        self.file = file

    def __enter__(self) -> IO[bytes]:
        try:
            self.opened = lines.opened(self.file)
        except OSError as error:
            raise unreadable(self.file, str(error.strerror)) from None
        self._look()
        return self.opened

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        try:
            if kind is None or isinstance(error, lines.Damaged | OSError):
                self._look()
        finally:
            self.opened.close()
        if isinstance(error, lines.Damaged):
            raise unreadable(self.file, f"it is damaged: {error}") from None
        if isinstance(error, OSError):
            raise unreadable(self.file, str(error.strerror)) from None

    def _look(self) -> None:
        if error := changed(self.file, os.fstat(self.opened.fileno())):
            self.opened.close()
            raise error from None


def _parsed(rows: list[bytes], keys: Sequence[str], path: str, before: int) -> Documents:
    """The documents in lines, `before` which there are so many in the part."""
    try:
        objects = list(map(orjson.loads, rows))
        texts = tuple([one[key] for one in objects] for key in keys)
    except (ValueError, KeyError, TypeError, IndexError):
        texts = ()
    if texts and all(set(map(type, column)) <= {str} for column in texts):
        return Documents(texts, [], 0, len(rows))
    return _looked_at(enumerate(rows, before + 1), _of_line, keys, path, len(rows))


def _looked_at(
    rows: Any,
    text_of: Callable[[Any, Sequence[str]], list[Text] | _NoKey | str | None],
    keys: Sequence[str],
    path: str,
    count: int,
) -> Documents:
    """The same, one after the other: there is something to say about some of them."""
    texts: tuple[list[Text], ...] = tuple([] for _ in keys)
    faults = []
    for number, row in rows:
        found = text_of(row, keys)
        if isinstance(found, str):
            faults.append(Fault(path, number, found))
        elif isinstance(found, _NoKey):
            faults.append(Fault(path, number, *found))
        elif found is not None:
            for column, text in zip(texts, found, strict=True):
                column.append(text)
    return Documents(texts, faults, 0, count)


def _of_line(line: bytes, keys: Sequence[str]) -> list[Text] | _NoKey | str | None:
    """The texts of a line; why it has none; None: it is blank.

    What orjson refuses, Python's own parser may take, as in Megatron's tool: NaN, and numbers of any size.
    """
    line = line.removesuffix(b"\n")
    if not line.strip():
        return None
    try:
        found = orjson.loads(line)
    except ValueError:
        try:
            found = plain_json.loads(line.decode())
        except UnicodeDecodeError as error:
            return f"invalid UTF-8: byte 0x{line[error.start]:02x} at position {error.start + 1} of the line"
        except json.JSONDecodeError as error:
            return f"malformed JSON: {error.msg.removesuffix(' at')} at position {error.pos + 1} of the line"
        except (ValueError, RecursionError) as error:
            return f"malformed JSON: {error}"
    return _of_object(found, keys)


def refused(where: str, fault: Fault, *, has_others: bool = True) -> PrimusError:
    """Return the error for the first fault where none is skipped.

    `has_others`: a document is known that has a text, so skipping leaves something, and its kind is `document`.
    Without one, it is `key` where the key may be a wrong one.
    """
    has_no_key = fault.keys is not None and not has_others
    meant = fault.keys[0] if fault.keys and len(fault.keys) == 1 else "KEY"
    named = f"name the key of the text: --json-keys {meant}\nor " if has_no_key else ""
    if fault.keys is None and not KINDS.intersection(os.path.splitext(fault.path)):
        named = _READ_AS_LINES if fault.number else _READ_AS_TEXT
    fix = f"{named}correct it" + (", or skip and count all such documents: --on-error skip" if has_others else "")
    kind = "document" if has_others else "key" if has_no_key else ""
    return PrimusError(f"{where}: {fault.what}", fix=fix, kind=kind, meant=meant)


def _of_object(found: Any, keys: Sequence[str]) -> list[Text] | _NoKey | str:
    if not isinstance(found, dict):
        return f"it is {_kind(found)}, not a JSON object"
    texts: list[Text] = []
    for key in keys:
        if key not in found:
            known = [printable(str(name))[:_MOST_SHOWN] for name in list(found)[:10]]
            return _NoKey(f"key '{key}' is missing" + (f"; the keys are {', '.join(known)}" if known else ""), known)
        if why := _fault(found[key]):
            return f"the value of '{key}' {why}"
        texts.append(found[key])
    return texts


def _fault(text: object) -> str:
    """Why this is no text; empty: it is one."""
    if isinstance(text, list):
        return next((f"has a sentence that {why}" for one in text if (why := _fault_of_string(one))), "")
    return _fault_of_string(text)


def _fault_of_string(text: object) -> str:
    if not isinstance(text, str):
        return f"is {_kind(text)}, not a string"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"has half of a surrogate pair, \\u{ord(text[error.start]):04x}, which is not Unicode"
    return ""


def _kind(value: object) -> str:
    names = {"NoneType": "null", "bool": "a boolean", "dict": "an object", "list": "a list", "str": "a string"}
    return names.get(type(value).__name__, "a number" if isinstance(value, int | float) else "something else")


def _rows(part: Part, file: File, keys: Sequence[str]) -> Iterator[Documents]:
    from primus_data.sources import parquet  # imports pyarrow

    size = part.size
    for first, rows in parquet.rows(file, part.start, part.end, keys):
        found = _looked_at(enumerate(rows, first + 1), _of_object, keys, file.path, len(rows))
        share, size = size, 0
        yield found._replace(size=share)
    with _Opened(file):
        pass


def _texts(files: Sequence[File], columns: int) -> Iterator[Documents]:
    """Each file is a document; so many of them at a time that they have some megabytes."""
    texts, faults, size = list[Text](), list[Fault](), 0
    for file in files:
        with _Opened(file) as opened:
            data = opened.read()
        try:
            texts.append(data.removeprefix(BOM_UTF8).decode())
        except UnicodeDecodeError as error:
            faults.append(Fault(file.path, 0, f"invalid UTF-8: byte 0x{data[error.start]:02x} at {error.start}"))
        size += len(data)
        if size >= lines.BLOCK or file is files[-1]:
            yield Documents((texts,) * columns, faults, size, 0)
            texts, faults, size = [], [], 0
