"""The tuning file: what `HIPBLASLT_TUNING_FILE` gets from hipBLASLt, and `HIPBLASLT_TUNING_OVERRIDE_FILE` gives it.

    Git Version: d5f81531
    transA,transB,grouped_gemm,batch_count,m,n,k,...,us,solution_index,kernel_name
    N,N,0,1,1024,512,1024,...,16.1189,56537,<kernel>

Each entry has these lines. Older releases write `soulution_index`, and no name of the kernel: such an entry holds for
the hipBLASLt that wrote it alone, whose `Git Version` must be the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from primus_bench.tuning.calls import Key
from primus_core.errors import ConfigError, RequestError
from primus_machine.files.atomic import read_regular

__all__ = ["Entry", "as_text", "by_key", "clashes", "parse", "read"]

_VERSION = "Git Version:"
_INDEX = ("solution_index", "soulution_index")
_NAMES = ("kernel_name", "solution_name")
_SIZES = ("batch_count", "m", "n", "k")
_TYPES = ("a_type", "b_type", "c_type", "compute_type")
_NEEDED = ("transA", "transB", *_SIZES, *_TYPES)
_FIX = "name a file that HIPBLASLT_TUNING_FILE or `gemm-tune tune` wrote"


class Entry(NamedTuple):
    """The fastest kernel for one multiplication."""

    git_version: str
    """Of the hipBLASLt that wrote it; empty: the file does not say."""
    columns: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def row(self) -> Mapping[str, str]:
        """The values by their columns."""
        return dict(zip(self.columns, self.values, strict=True))

    @property
    def solution(self) -> int:
        """The index of the kernel."""
        row = self.row
        return int(next(row[name] for name in _INDEX if name in row))

    @property
    def kernel(self) -> str:
        """Its name; empty: the entry has none."""
        row = self.row
        return next((row[name] for name in _NAMES if row.get(name)), "")

    @property
    def is_wide(self) -> bool:
        """Whether hipBLASLt looks it up by more than `key`: an entry of its own cache, HIPBLASLT_TUNING_MODE=tune."""
        return self.row.get("schema_version", "0") != "0"

    @property
    def us(self) -> float | None:
        """Microseconds that it took."""
        text = self.row.get("us", "")
        return float(text) if re.fullmatch(r"[0-9.]+(?:e[+-]?[0-9]+)?", text) else None

    @property
    def key(self) -> Key:
        """What hipBLASLt looks it up by."""
        row = self.row
        trans_a, trans_b = ("N" if row[name] == "N" else "T" for name in ("transA", "transB"))
        batch, m, n, k = (int(row[name]) for name in _SIZES)
        a, b, c, compute = (row[name] for name in _TYPES)
        return Key(trans_a, trans_b, batch, m, n, k, a, b, c, compute)


def read(path: str) -> tuple[Entry, ...]:
    """The entries of a tuning file.

    Raises:
        RequestError: it cannot be read, or is none.
    """
    try:
        text = read_regular(os.path.realpath(path)).decode("ascii", errors="replace")
    except OSError as error:
        raise RequestError(f"{path} cannot be read", why=str(error.strerror), fix=_FIX) from None
    found = tuple(parse(text, path))
    if not found:
        raise RequestError(f"{path} has no entries", fix=_FIX)
    return found


def parse(text: str, path: str = "") -> Iterator[Entry]:
    """The entries in the text of a tuning file called `path`.

    Raises:
        ConfigError: a line is neither a version, a header nor an entry of that header.
    """
    version, columns = "", tuple[str, ...]()
    for number, line in enumerate(text.split("\n"), 1):
        cells = tuple(cell.strip() for cell in line.split(","))
        if line.startswith(_VERSION):
            version = line.removeprefix(_VERSION).strip()
        elif cells[0] == "transA":
            columns = cells
        elif line.strip():
            yield _entry(version, columns, cells, f"{path}:{number}")


def _entry(version: str, columns: tuple[str, ...], values: tuple[str, ...], where: str) -> Entry:
    if len(columns) != len(values):
        what = f"the line has {len(values)} values for {len(columns)} columns" if columns else "no header above it"
        raise ConfigError(what, where=where, fix=_FIX)
    row = dict(zip(columns, values, strict=True))
    missing = [name for name in _NEEDED if name not in row] + ["solution_index"] * (not set(_INDEX) & row.keys())
    if missing:
        raise ConfigError(f"the entry has no {missing[0]}", where=where, fix=_FIX)
    for name in (*_SIZES, *_INDEX):
        if name in row and not re.fullmatch("[0-9]{1,18}", row[name]):
            raise ConfigError(f"{name} is '{row[name]}', and must be a number", where=where, fix=_FIX)
    return Entry(version, columns, values)


def as_text(entries: Iterable[Entry]) -> str:
    """The entries as hipBLASLt writes them: each with its version and header."""
    return "".join(
        f"{_VERSION} {entry.git_version}\n" * bool(entry.git_version)
        + f"{','.join(entry.columns)}\n{','.join(entry.values)}\n"
        for entry in entries
    )


def by_key(entries: Iterable[Entry]) -> dict[Key, list[Entry]]:
    """The entries by what they are looked up by."""
    found: dict[Key, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.key, []).append(entry)
    return found


def clashes(entries: Iterable[Entry]) -> list[Key]:
    """What has entries that name different kernels: only one of them can count."""
    return [key for key, found in by_key(entries).items() if len({entry.solution for entry in found}) > 1]
