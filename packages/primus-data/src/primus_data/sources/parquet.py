"""Row groups of parquet files as documents. The library `pyarrow` is needed only here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from primus_core.errors import MachineError, PrimusError
from primus_data.sources.files import File, unreadable
from primus_machine.text import printable

__all__ = ["divide", "rows"]

_BUFFER = 1 << 20
_MOST_ROWS, _BYTES = 8192, 4 << 20
"""At a time."""


def _opened(file: File) -> Any:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        fix = "pip install 'primus-data[parquet]'"
        raise MachineError("Python module 'pyarrow' not found", why="it reads parquet files", fix=fix) from None
    try:
        return parquet.ParquetFile(file.path, buffer_size=_BUFFER, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file, str(error)) from None


def divide(file: File, size: int) -> Iterator[tuple[int, int, int]]:
    """Ranges of row groups with about `size` bytes of the file each: first, end, bytes.

    Raises:
        PrimusError: it cannot be read.
    """
    with _opened(file) as opened:
        groups = opened.num_row_groups
        each = max(1, file.size // max(groups, 1))
        step = max(1, size // each)
        for start in range(0, groups, step):
            end = min(start + step, groups)
            yield start, end, each * (end - start)


def rows(file: File, start: int, end: int, keys: Sequence[str]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Rows of a range of row groups, with the number of the first of them in the file.

    Raises:
        PrimusError: it cannot be read, or is damaged.
    """
    import pyarrow as pa

    with _opened(file) as opened:
        known = opened.schema_arrow.names
        first = sum(opened.metadata.row_group(group).num_rows for group in range(start))
        columns = [key for key in dict.fromkeys(keys) if key in known]
        if several := next((key for key in columns if known.count(key) > 1), ""):
            why = f"{known.count(several)} of its columns are called '{printable(several)}'"
            fix = "write a file in which each column has a name of its own"
            raise PrimusError(f"'{printable(file.path)}' cannot be read", why=why, fix=fix)
        try:
            groups = list(range(start, end))
            for batch in opened.iter_batches(_batch(opened.metadata, groups), groups, columns, use_threads=False):
                yield first, batch.to_pylist() if columns else [{}] * batch.num_rows
                first += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise unreadable(file, str(error)) from None


def _batch(metadata: Any, groups: Sequence[int]) -> int:
    """Rows that are some megabytes together."""
    found = [metadata.row_group(group) for group in groups]
    each = sum(group.total_byte_size for group in found) // max(1, sum(group.num_rows for group in found))
    return int(min(max(1, _BYTES // max(1, each)), _MOST_ROWS))
