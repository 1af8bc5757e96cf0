"""The kinds of values that options take: for `type=` of argparse."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable

__all__ = ["byte_count", "seconds", "seed", "series", "whole"]

_MOST_VALUES = 200


def whole(text: str, least: int, most: int) -> int:
    """A whole number from `least` to `most`.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    # `isascii`: int() also reads digits of other scripts; the length keeps int() from refusing in its own words
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 25 else -1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {least} to {most}")
    return value


def seed(text: str) -> int:
    """For `type=`: a seed."""
    return whole(text, 0, 2**63 - 1)


def seconds(text: str) -> float:
    """For `type=`: a duration.

    Raises:
        argparse.ArgumentTypeError: it is none, or endless.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds greater than 0")
    return value


def byte_count(text: str) -> int:
    """For `type=`: bytes, of `500MB`, `2GiB` or a number.

    Raises:
        argparse.ArgumentTypeError: it is none of them, or beyond 1 TiB.
    """
    found = re.fullmatch(r"([0-9]{1,13})(?:([kKMGT])(i?)B?|B)?", text)
    unit = (1024 if found[3] else 1000) ** " kMGT".index((found[2] or " ").replace("K", "k")) if found else 0
    value = int(found[1]) * unit if found else 0
    if not 0 < value <= 2**40:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 64KiB, 500MB or 2GiB, of at most 1TiB")
    return value


def series(text: str, one: Callable[[str], int], examples: str) -> tuple[int, ...]:
    """Values of a list or of ranges, in the order in which they are named, each once: `1,2`, `1:64:x2`, `1:9:+4`.

    `one` reads a single value.

    Raises:
        argparse.ArgumentTypeError: a part is no value and no range, or there are more than 200 values.
    """
    found = tuple(dict.fromkeys(value for part in text.split(",") for value in _part(part, one, examples)))
    if len(found) > _MOST_VALUES:
        raise argparse.ArgumentTypeError(f"'{text}' is {len(found)} values; at most {_MOST_VALUES} are possible")
    return found


def _part(text: str, one: Callable[[str], int], examples: str) -> list[int]:
    if ":" not in text:
        try:
            return [one(text)]
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}; several are a list (A,B) or a range: {examples}") from None
    words = re.fullmatch(r"([^:]+):([^:]+):(?:x([0-9]{1,4})|\+([^:]+))", text)
    if not words:
        raise argparse.ArgumentTypeError(f"'{text}' is not a range such as {examples}")
    first, last, times = one(words[1]), one(words[2]), int(words[3] or 1)
    step = one(words[4]) if words[4] else 0
    if first > last or (words[3] and times < 2):
        raise argparse.ArgumentTypeError(f"'{text}' must rise: from the smaller value to the larger, by x2 or more")
    found = [first]
    while (value := found[-1] * times + step) <= last and len(found) <= _MOST_VALUES:
        found.append(value)
    return found
