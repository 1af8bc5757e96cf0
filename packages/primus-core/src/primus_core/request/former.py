"""Words that AMD's Primus and torchrun have for what is called otherwise here: rows of `data/former.toml`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

__all__ = ["instead", "of_torchrun"]

_FILE = os.path.join(os.path.dirname(__file__), "..", "data", "former.toml")
_SAME = {"benchmark": "bench"}


@cache
def _words() -> Mapping[str, Any]:
    """Of each place, the words that it does not know."""
    with open(_FILE, "rb") as file:
        return tomllib.load(file)


def of_torchrun() -> Mapping[str, str]:
    """What to type instead of torchrun's options, by option."""
    return dict(_words()["direct"]["torchrun"])


def instead(place: str, word: str) -> str:
    """What to type instead of a word that `place` (`primus direct`) does not know; empty: it never was one."""
    name, word = place.rpartition(" ")[2], word.partition("=")[0]
    known = {**_words().get(_SAME.get(name, name), {})}
    known |= known.pop("torchrun", {})
    dashed = f"--{word[2:].replace('_', '-')}" if name == "direct" and word.startswith("--") else word
    return str(known.get(word) or (of_torchrun().get(dashed, "") if dashed != word else ""))
