"""The objects of one long list in a JSON file, one after the other, in little memory.

A trace is one object with a list of millions of events; a parser of whole documents would hold all of it. Libraries for
streams (ijson) keep the path to each value as text, which deep brackets of a stranger turn into gigabytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TextIO

__all__ = ["Malformed", "objects"]

_PIECE = 1 << 20
_LONGEST = 1 << 24
"""No event is longer."""
_OVERLAP = 256
_NEXT = re.compile(r"[\s,]*")


class Malformed(ValueError):  # noqa: N818  # as one reads it: `raise Malformed`
    """The file is no such JSON, or ends too early."""


def objects(file: TextIO, key: str) -> Iterator[Any]:
    """The values of the list under `key`.

    Raises:
        Malformed: there is no such list, or what follows is no JSON.
    """
    text = _find(file, re.compile(rf'"{re.escape(key)}"\s*:\s*\['))
    decoder, at = json.JSONDecoder(), 0
    while True:
        at = _NEXT.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        if text[at : at + 1] == "]":
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except RecursionError:
            raise Malformed("an event is nested too deeply") from None
        except json.JSONDecodeError as error:
            text, at = _more(file, text[at:], error), 0
        else:
            yield value


def _find(file: TextIO, start: re.Pattern[str]) -> str:
    """The text behind the beginning of the list."""
    text = ""
    while piece := file.read(_PIECE):
        text = text[-_OVERLAP:] + piece
        if found := start.search(text):
            return text[found.end() :]
    raise Malformed("it has no list of events")


def _more(file: TextIO, rest: str, error: json.JSONDecodeError) -> str:
    """The rest of the text with the next piece of the file."""
    if len(rest) > _LONGEST:
        raise Malformed(f"an event is not valid JSON: {error.msg}")
    if not (piece := file.read(_PIECE)):
        raise Malformed("it was cut off" if rest else "its list of events has no end")
    return rest + piece
