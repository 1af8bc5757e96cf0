"""Rows of source files, as the lines of JSON that are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import orjson

from primus_data.fetching import lines
from primus_data.fetching.formats import Format
from primus_machine.errors import MachineError, RequestError, suggestion
from primus_machine.text import printable

__all__ = ["Columns", "Reading", "Row", "Sizes", "count", "sizes"]

_BATCH_BYTES, _MOST_IN_BATCH = 1 << 22, 1024
_BUFFER = 1 << 20
_ARRAY = "; a file with one array of all rows is not supported"
_BOM = b"\xef\xbb\xbf"


class Columns(NamedTuple):
    """What of a row is written."""

    names: tuple[str, ...]
    """Empty: all."""
    text: str
    """The one that is a text in each row; empty: none needs to be."""
    renamed: bool = False

    def line(self, row: dict[str, Any]) -> bytes | str:
        """The line of a row, or what is wrong with it."""
        for name in self.names or ((self.text,) if self.text else ()):
            if name not in row:
                return f"it has no key '{printable(name)}'"
        if self.text and not isinstance(text := row[self.text], str):
            return f"'{printable(self.text)}' is {_kind(text)}, and not text"
        if self.renamed:
            row = {"text": row[self.text]}
        elif self.names:
            row = {name: row[name] for name in self.names}
        try:
            return orjson.dumps(row, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)
        except (TypeError, ValueError, RecursionError) as error:
            return printable(str(error))


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {str: "text", dict: "an object", list: "a list", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), f"a {type(value).__name__}")


class Row(NamedTuple):
    """A row of a file."""

    line: bytes
    """With its end; empty: it cannot be written."""
    fault: str = ""
    """What is wrong with it, and where."""


class Reading:
    """A file being read. `file` is seekable; one on this machine is read by its path."""

    def __init__(self, name: str, kind: Format, columns: Columns, size: int) -> None:
        self.name, self.format, self.columns, self.size = name, kind, columns, size
        self.share = 0.0
        """How much of it was read, from 0 to 1."""

    def rows(self, file: IO[bytes], start: int, stop: int | None) -> Iterator[Row]:
        """From row `start` to the one before `stop`, or to its end.

        Raises:
            PrimusError: the file is damaged, or lacks a column.
        """
        read = {"parquet": self._parquet, "jsonl": self._jsonl, "text": self._text}[self.format.kind]
        yield from read(file, start, stop)

    def _jsonl(self, file: IO[bytes], start: int, stop: int | None) -> Iterator[Row]:
        found = lines.split(file, self.format.compression, self.name, self.size)
        at = 0
        for number, line in enumerate(found, 1):
            if number == 1:
                line = line.removeprefix(_BOM)  # noqa: PLW2901
            if not line or line.isspace():
                continue
            if stop is not None and at >= stop:
                return
            at += 1
            if at > start:
                self.share = file.tell() / max(self.size, 1)
                yield self._of_line(line, f"{self.name}:{number}")

    def _of_line(self, line: bytes, where: str) -> Row:
        try:
            data = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            return Row(b"", f"{where}: {_why_no_json(line, error)}")
        if not isinstance(data, dict):
            return Row(b"", f"{where}: the line is {_kind(data)}, and not an object{_ARRAY * isinstance(data, list)}")
        made = self.columns.line(data)
        if isinstance(made, str):
            return Row(b"", f"{where}: {made}")
        # All columns: the line itself, since numbers beyond 64 bits would lose digits.
        return Row(made if self.columns.names else line.strip() + b"\n")

    def _text(self, file: IO[bytes], start: int, stop: int | None) -> Iterator[Row]:
        if start or stop == 0:
            return
        data = bytearray()
        for part in lines.blocks(file, self.format.compression, self.name):
            data += part
            if len(data) > lines.LONGEST:
                raise lines.damaged(self.name, f"a text file is one row, and has more than {lines.LONGEST:,} bytes")
        try:
            made = self.columns.line({"text": data.decode()})
        except UnicodeDecodeError as error:
            made = f"byte {error.start} is not valid UTF-8"
        yield Row(b"", f"{self.name}: {made}") if isinstance(made, str) else Row(made)

    def _parquet(self, file: IO[bytes], start: int, stop: int | None) -> Iterator[Row]:
        reader = _opened(file, self.name)
        schema = reader.schema_arrow
        names = list(self.columns.names or schema.names)
        _check_columns(names, schema, self.name)
        total, at = max(reader.metadata.num_rows, 1), 0
        for group in range(reader.num_row_groups):
            rows = reader.metadata.row_group(group).num_rows
            if at + rows <= start:
                at += rows
                continue
            for batch in _batches(reader, group, names, self.name):
                if stop is not None and at >= stop:
                    return
                skip = min(max(start - at, 0), batch.num_rows)
                part = batch.slice(skip, None if stop is None else max(stop - at - skip, 0))
                for number, row in enumerate(_values(part, names), at + skip + 1):
                    self.share = number / total
                    yield self._of_row(row, number)
                at += batch.num_rows

    def _of_row(self, row: dict[str, Any] | str, number: int) -> Row:
        made = row if isinstance(row, str) else self.columns.line(row)
        return Row(b"", f"{self.name}, row {number}: {made}") if isinstance(made, str) else Row(made)


def _why_no_json(line: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as undecodable:
        return f"byte {undecodable.start} of the line is not valid UTF-8"
    if line.lstrip().startswith(b"["):
        return f"the line is not a JSON object{_ARRAY}"
    return f"the line is not valid JSON: {printable(str(error))}"


def count(file: IO[bytes], name: str, kind: Format, size: int) -> int:
    """The rows of a file; of a parquet file, only its end is read.

    Raises:
        PrimusError: it is damaged.
    """
    if kind.kind == "text":
        return 1
    if kind.kind == "parquet":
        return int(_opened(file, name).metadata.num_rows)
    found = lines.split(file, kind.compression, name, size)
    return sum(1 for line in found if line and not line.isspace() and line != _BOM)


class Sizes(NamedTuple):
    """What the end of a parquet file says."""

    rows: int
    text: int
    """Bytes of the columns, not compressed."""


def sizes(file: IO[bytes], name: str, columns: Sequence[str]) -> Sizes:
    """The size of some columns of a parquet file; of all, where none is named.

    Raises:
        RequestError: it lacks one of them.
        PrimusError: it is damaged.
    """
    reader = _opened(file, name)
    _check_columns(columns or reader.schema_arrow.names, reader.schema_arrow, name)
    found, text = reader.metadata, 0
    for group in range(found.num_row_groups):
        parts = (found.row_group(group).column(index) for index in range(found.num_columns))
        text += sum(
            part.total_uncompressed_size
            for part in parts
            if not columns or part.path_in_schema.partition(".")[0] in columns
        )
    return Sizes(found.num_rows, text)


def _opened(file: IO[bytes], name: str) -> Any:
    """A reader of a parquet file, which holds a part of a column at a time."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MachineError("Python module 'pyarrow' not found", fix="pip install 'primus-data[parquet]'") from None
    pa.set_memory_pool(pa.system_memory_pool())  # its own keeps what it once had: tens of MB for each GB of a file
    is_here = isinstance(getattr(file, "name", None), str) and os.path.exists(file.name)
    try:
        if is_here:
            return pq.ParquetFile(file.name, buffer_size=_BUFFER, pre_buffer=False, memory_map=False)
        return pq.ParquetFile(pa.PythonFile(file, mode="r"), pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise lines.damaged(name, str(error)) from None


def _check_columns(names: Sequence[str], schema: Any, where: str) -> None:
    import pyarrow as pa

    for name in names:
        if name not in schema.names:
            known = ", ".join(map(printable, schema.names[:50]))
            fix = suggestion(name, schema.names) or "choose with --columns or --text-column"
            raise RequestError(f"{where} has no column '{name}'", why=f"its columns: {known}", fix=fix)
        if (count := schema.names.count(name)) > 1:
            fix = "choose other columns with --columns, or write a file in which each has a name of its own"
            raise RequestError(f"{where} has {count} columns '{printable(name)}'", fix=fix)
        kind = schema.field(name).type
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            raise RequestError(
                f"column '{name}' of {where} holds bytes, which JSON cannot say", fix="choose others with --columns"
            )


def _batches(reader: Any, group: int, names: list[str], where: str) -> Iterator[Any]:
    """The rows of a row group, some megabytes at a time."""
    import pyarrow as pa

    found = reader.metadata.row_group(group)
    size = max(min(_BATCH_BYTES * found.num_rows // max(found.total_byte_size, 1), _MOST_IN_BATCH), 1)
    try:
        yield from reader.iter_batches(size, row_groups=[group], columns=names, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise lines.damaged(where, str(error)) from None


def _values(batch: Any, names: list[str]) -> Iterator[dict[str, Any] | str]:
    """Each row as a dictionary, or what is wrong with it."""
    columns = [_plain(batch.column(batch.schema.get_field_index(name))) for name in names]
    try:
        for row in zip(*(column.to_pylist() for column in columns), strict=True):
            yield dict(zip(names, row, strict=True))
    except (UnicodeDecodeError, ValueError, OverflowError, NotImplementedError):
        pass
    else:
        return
    yield from (_slowly(columns, names, number) for number in range(batch.num_rows))


def _plain(column: Any) -> Any:
    """Times and decimals as text: JSON has none."""
    import pyarrow as pa

    kind = column.type
    is_special = pa.types.is_temporal(kind) or pa.types.is_decimal(kind)
    return column.cast(pa.string()) if is_special and not pa.types.is_duration(kind) else column


def _slowly(columns: list[Any], names: list[str], number: int) -> dict[str, Any] | str:
    row: dict[str, Any] = {}
    for name, column in zip(names, columns, strict=True):
        value = _read(column[number].as_py)
        if isinstance(value, _Unreadable):
            return f"'{printable(name)}' {value.why}"
        row[name] = value
    return row


class _Unreadable(NamedTuple):
    why: str


def _read(value: Callable[[], Any]) -> Any:
    try:
        return value()
    except UnicodeDecodeError as error:
        return _Unreadable(f"is not valid UTF-8: byte {error.start}")
    except (ValueError, OverflowError, NotImplementedError) as error:
        return _Unreadable(f"cannot be read: {printable(str(error))}")
