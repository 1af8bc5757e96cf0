"""Words that AMD's Primus and torchrun have for what is called otherwise here: rows of `data/former.toml`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, NamedTuple

from primus_machine.errors import nearest, suggestion

__all__ = ["Answer", "answer", "example", "instead", "is_positional", "of_torchrun", "word_set"]

_FILE = os.path.join(os.path.dirname(__file__), "..", "data", "former.toml")
_SAME = {"benchmark": "bench"}


class Answer(NamedTuple):
    """What to do about a word that is not known. The fields of an error of that name."""

    fix: str = ""
    meant: str | None = None


@cache
def _words() -> Mapping[str, Any]:
    """Of each place, the words that it does not know."""
    with open(_FILE, "rb") as file:
        return tomllib.load(file)


def of_torchrun() -> Mapping[str, str]:
    """Return for each option of torchrun the variable that says the same; empty: one variable does not."""
    rows = _words()["direct"]["torchrun"]
    return {option: row.get("variable", "") if isinstance(row, dict) else "" for option, row in rows.items()}


def word_set(name: str) -> frozenset[str]:
    """Return a row of the table `words`; empty: there is none."""
    return frozenset(_words()["words"].get(name, ()))


def example(place: str, flag: str) -> str:
    """Return a value of a required option of `place`; empty: none is known."""
    return str(_words()["example"].get(f"{place} {flag}") or _words()["example"].get(flag, ""))


def answer(place: str, word: str, known: Collection[str] = (), alike: float = 0.6) -> Answer:
    """Return what to do about a word that `place` (`primus direct`) does not know, which may misspell a `known` one."""
    if row := _row(place, word):
        return _read(row)
    near = nearest(word, known, alike)
    return Answer(suggestion(word, (near,), alike), near) if near else Answer()


def instead(place: str, word: str) -> str:
    """Return what to type instead of a word that `place` does not know; empty: it never was one."""
    return answer(place, word).fix


def is_positional(flag: str, name: str) -> bool:
    """Whether other tools have the option `flag` for the argument that stands by itself here under `name`."""
    return flag in _words()["positional"].get(name, ()) or flag == f"--{name.lower()}"


def _row(place: str, word: str) -> Any:
    name, key = place.rpartition(" ")[2], word.partition("=")[0]
    known = {**_words().get(_SAME.get(name, name), {})}
    known |= known.pop("torchrun", {})
    if name == "direct" and key.startswith("--") and key not in known:
        return _words()["direct"]["torchrun"].get(f"--{key[2:].replace('_', '-')}")
    return known.get(key) or known.get("=" if "=" in word[1:] and word[0] != "-" else "")


def _read(row: Any) -> Answer:
    """Return the answer of a row: a text, or a table with what to type, to remove, or to set."""
    if isinstance(row, str):
        return Answer(row)
    if "type" in row:
        return Answer(f"type {row['type']}", row["type"])
    if "remove" in row:
        return Answer(f"remove it: {row['remove']}", "")
    more = f", or: {row['or']}" if "or" in row else ""
    return Answer(f"{row['variable']}={row.get('value', 'N')} before the command{more}")
