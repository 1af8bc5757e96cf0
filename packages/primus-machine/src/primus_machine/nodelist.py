"""Many host names written short, as schedulers do: `n[01-04,7],m3`.

`scontrol show hostnames` gives the same, in the same order; planning starts no process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from primus_machine.errors import RequestError

__all__ = ["host_count", "hosts"]

# As text: `re` compiles what is asked, and every dry run loads this module.
_ITEM = r"(?:[^,\[\]]|\[[^\[\]]*\])+"
_BRACKET = r"\[([^\[\]]*)\]"
_RANGE = r"([0-9]{1,18})-([0-9]{1,18})"
_NUMBER = r"[0-9]{1,18}"
_SHOWN = 80


def hosts(text: str, source: str = "") -> Iterator[str]:
    """The host names of a node list, one after the other in order. `source`: the variable that holds it.

    Raises:
        RequestError: a bracket is not closed, or holds something other than numbers and ranges.
    """
    if why := _mistake(text):
        fix = "write it as n[01-04,7],m3"
        named = f"{source} is '{text[:_SHOWN]}', which" if source else f"'{text[:_SHOWN]}'"
        raise RequestError(f"{named} is not a node list", why=why, fix=f"unset {source}, or {fix}" if source else fix)
    for item in re.findall(_ITEM, text):
        pieces = re.split(_BRACKET, item)  # text, what is in a bracket, text, ...
        brackets = range(1, len(pieces), 2)
        # scontrol turns the last bracket fastest, then the first, the second, ... (hostlist.c, _push_range_list)
        yield from _names(pieces, [*reversed(brackets[:-1]), *brackets[-1:]])


def host_count(text: str) -> int:
    """How many there are."""
    return sum(1 for _ in hosts(text))


def _mistake(text: str) -> str:
    """Why it is not a node list; empty: it is one."""
    brackets = re.findall(_BRACKET, text)
    rest = re.sub(_BRACKET, "", text)
    if "[" in rest or "]" in rest:
        return "a bracket is not closed, or is inside another one"
    for bracket in brackets:
        for part in bracket.split(","):
            match = re.fullmatch(_RANGE, part.strip())
            if match and int(match[1]) > int(match[2]):
                return f"the range {part} ends before it starts"
            if not match and not re.fullmatch(_NUMBER, part.strip()):
                return f"'{part}' in brackets is neither a number nor a range of numbers"
    return ""


def _names(pieces: list[str], order: Sequence[int]) -> Iterator[str]:
    """The names that come of giving each bracket in `order` all of its values, the last of them fastest."""
    if not order:
        yield "".join(pieces)
        return
    place, *rest = order
    for value in _values(pieces[place]):
        yield from _names([*pieces[:place], value, *pieces[place + 1 :]], rest)


def _values(bracket: str) -> Iterator[str]:
    """`01-03,7`: 01, 02, 03, 7. As wide as the range's beginning is written."""
    for part in (part.strip() for part in bracket.split(",")):
        if match := re.fullmatch(_RANGE, part):
            yield from (f"{number:0{len(match[1])}d}" for number in range(int(match[1]), int(match[2]) + 1))
        else:
            yield part
