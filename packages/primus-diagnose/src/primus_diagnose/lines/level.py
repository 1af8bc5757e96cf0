"""Whether a line calls itself mere information or a warning: what it names did not fail, however bad it looks."""

from __future__ import annotations

import re

__all__ = ["is_handled", "is_information", "is_warning"]

_HEAD = 160
"""A line's level stands at its beginning."""
_LEVEL = re.compile(r"(?<![=\w.-])(?:INFO|DEBUG|TRACE)\b(?!=)|^\s*[ID]\d{4} \d\d:\d\d|\[[ID](?:\d{3,4})? ")
_WARNING = re.compile(r"(?<![=\w.-])(?:WARN(?:ING)?|\w*Warning)\b(?!=)|^\s*W\d{4} \d\d:\d\d|\[W(?:\d{3,4})? |: W ")
_ALL_WARN = re.compile(r"CCL WARN\b|: W |\[c10d\]|^\s*\[[\d. ]+\]|amdgpu|kernel:|torch/distributed/elastic")
"""Who has no other level for what it cannot go on after, or tells what another process said."""
_RELAYED = re.compile(r"[A-Za-z](?:Error|Exception)\b|\berror:|Traceback")
"""A supervisor that logs what its child says calls all of it information."""


def is_information(line: str) -> bool:
    """Whether a line without its prefixes is of the level INFO or below, and quotes no error."""
    return bool(_LEVEL.search(line, 0, _HEAD)) and not _RELAYED.search(line)


def is_warning(line: str) -> bool:
    """Whether a line without its prefixes is of the level WARNING."""
    return bool(_WARNING.search(line, 0, _HEAD))


def is_handled(line: str) -> bool:
    """Whether a program warns of something that it goes on without."""
    return is_warning(line) and not _ALL_WARN.search(line)
