"""One line of hipBLASLt's log: the call of `hipblaslt-bench` that repeats a multiplication. Nothing of it is lost.

    hipblaslt-bench --api_method c -m 1024 -n 512 -k 1024 ... --bias_vector  --compute_type f32_r --solution_index 56073

Flags may have no value, values may be negative, spaces may be doubled, and any flag may be missing or unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

__all__ = ["CHOICE", "COMMAND", "Call", "Flag", "Key", "parse"]

COMMAND = "hipblaslt-bench"
CHOICE = "--solution_index"
"""The flag that says which kernel was chosen, and not what was multiplied."""
_CALL = re.compile(rf"(?:^|[\s/]){COMMAND}\s+(\S.*)")
_FLAG = re.compile(r"--?(?!(?:inf|nan)\b)[A-Za-z]\S*", re.IGNORECASE)
_TRANSPOSED = {"N": "N", "T": "T", "C": "T"}
"""The tuning file knows two kinds."""


class Flag(NamedTuple):
    """A flag with the words behind it. `name` is empty for words before the first flag."""

    name: str
    values: tuple[str, ...] = ()


class Key(NamedTuple):
    """What hipBLASLt looks a multiplication up by, column-major: no leading dimensions, no strides, no epilogue."""

    trans_a: str
    trans_b: str
    batch: int
    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    c_type: str
    compute_type: str

    def __str__(self) -> str:
        batch = f" batch {self.batch}" if self.batch != 1 else ""
        types = "/".join(dict.fromkeys((self.a_type, self.b_type, self.c_type, self.compute_type)))
        return f"{self.m}x{self.n}x{self.k} {self.trans_a}{self.trans_b} {types}{batch}"


class Call(NamedTuple):
    """The flags of one, in their order. One may stand there several times, as in grouped GEMMs."""

    flags: tuple[Flag, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of `hipblaslt-bench`."""
        return tuple(word for flag in self.flags for word in (flag.name, *flag.values) if word)

    @property
    def text(self) -> str:
        """The call as one line, with single spaces."""
        return " ".join((COMMAND, *self.words))

    @property
    def solution(self) -> int | None:
        """The kernel that was chosen; None: the line does not say."""
        text = self.value(CHOICE)
        return int(text) if re.fullmatch("-?[0-9]{1,18}", text) else None

    @property
    def key(self) -> Key | None:
        """What it is looked up by; None: it lacks a size, so it is none that a tuning file can name."""
        m, n, k, batch = (*(self._number(f"-{name}") for name in "mnk"), self._number("--batch_count", "1"))
        trans_a, trans_b = (_TRANSPOSED.get(self.value(f"--trans{name}") or "N", "") for name in "AB")
        a, b, c, compute = (self.value(f"--{name}_type") for name in ("a", "b", "c", "compute"))
        if m is None or n is None or k is None or batch is None or not all((trans_a, trans_b, a, b, c, compute)):
            return None
        return Key(trans_a, trans_b, batch, m, n, k, a, b, c, compute)

    def value(self, *names: str) -> str:
        """The first value of the first flag that has one of these names; empty: there is none."""
        return next((flag.values[0] for flag in self.flags if flag.name in names and flag.values), "")

    def without(self, names: Collection[str]) -> Call:
        """The same without these flags and their values."""
        return Call(tuple(flag for flag in self.flags if flag.name not in names))

    def _number(self, name: str, default: str = "") -> int | None:
        text = self.value(name) or default
        return int(text) if re.fullmatch("[0-9]{1,18}", text) else None


def parse(line: str) -> Call | None:
    """The call in a line of a log, whatever stands before it; None: there is none."""
    found = _CALL.search(line)
    return Call(tuple(_flags(found[1].split()))) if found else None


def _flags(words: list[str]) -> Iterator[Flag]:
    name, values = "", list[str]()
    for word in words:
        if _FLAG.fullmatch(word):
            if name or values:
                yield Flag(name, tuple(values))
            name, values = word, []
        else:
            values.append(word)
    yield Flag(name, tuple(values))
