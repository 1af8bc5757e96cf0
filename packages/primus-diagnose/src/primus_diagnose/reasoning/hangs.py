"""The ranks that kept the others waiting, as they were seen before Primus ended them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from primus_core.config import submission
from primus_diagnose.lines.clean import shown
from primus_diagnose.lines.times import moment
from primus_diagnose.reasoning.collectives import BEHIND, DESYNC, STACKS
from primus_diagnose.verdict import Hit

__all__ = ["RANK", "inferred"]

RANK = "hang.rank"
"""A rank is elsewhere than the others, and those wait in no collective."""
_COLLECTIVE = "collective"


def inferred(hang: Mapping[str, Any]) -> list[Hit]:
    """A line for each odd rank; nothing: there is none, or the record is damaged."""
    rows, usual = hang.get("odd"), hang.get("usual")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return []
    return list(_hits(hang, rows, usual if isinstance(usual, dict) else {}))


def _hits(hang: Mapping[str, Any], rows: list[dict[str, Any]], usual: Mapping[str, Any]) -> Iterator[Hit]:
    others, seconds = _where(usual), hang.get("time")
    for row in rows:
        rank, where = row.get("rank"), _where(row)
        if not isinstance(rank, int) or isinstance(rank, bool):
            continue
        groups = {"what": f"it is {where}", "others": others, "operation": _text(usual, "operation"), "from": STACKS}
        groups["kind"] = _text(row, "kind")
        yield Hit(
            _signature(row, usual),
            f"rank {rank} is {where}; the others are {others}",
            file=str(hang.get("file") or ""),
            rank=rank,
            node=_text(row, "node"),
            time=moment(seconds),
            groups=groups,
            code=_code(row),
        )


def _signature(row: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    if usual.get("kind") != _COLLECTIVE:
        return RANK
    return DESYNC if row.get("kind") == _COLLECTIVE else BEHIND


def _where(row: Mapping[str, Any]) -> str:
    """`in a collective: all_reduce, at train.py:12 in main`."""
    code = _code(row)
    details = ", ".join(filter(None, (_text(row, "operation"), f"at {code}" if code else "")))
    return ": ".join(filter(None, (_text(row, "words") or "elsewhere", details)))


def _code(row: Mapping[str, Any]) -> str:
    """Return the place in the program: of a submitted copy, in the file that it is a copy of."""
    return submission.original(_text(row, "code"))


def _text(row: Mapping[str, Any], name: str) -> str:
    return shown(str(row.get(name) or ""))
