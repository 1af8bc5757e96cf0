"""Takes colours and other control sequences off, and makes text harmless that is shown."""

from __future__ import annotations

import re

from primus_machine.secrets.redaction import redact

__all__ = ["shown", "without_controls"]

_SEQUENCES = re.compile(
    rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # colours, cursor movements
    rb"|[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)?"  # titles, links and other strings
    rb"|[ -/]{0,8}[0-~])"
)
_MOST_SHOWN = 400
_UNPRINTABLE = re.compile(r"[^\S ]+|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def without_controls(text: bytes) -> bytes:
    """The same without terminal sequences. No line end goes with them, so lines keep their numbers."""
    return _SEQUENCES.sub(b"", text) if b"\x1b" in text else text


def shown(text: str, most: int = _MOST_SHOWN) -> str:
    """A line of a log as a terminal or a page may show it: no controls, no secrets, not too long."""
    text = _UNPRINTABLE.sub(_spelt_out, text[: 4 * most].strip())
    text = redact(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _spelt_out(match: re.Match[str]) -> str:
    return " " if match[0].isspace() else "".join(f"\\x{ord(c):02x}" for c in match[0])
