"""Whether the ranks that hold the same piece of a parameter hold the same numbers, to the bit."""

from __future__ import annotations

import glob
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence

from primus_core.errors import MachineError
from primus_train.kit.replicas import FOLDER
from primus_verify.verdict import Finding, pattern_of

__all__ = ["differences"]

_SHOWN = 8


def differences(run: str, step: int) -> list[Finding]:
    """Return what differs between ranks after the last `step` of a run: one finding for each kind of parameter.

    Raises:
        MachineError: what the ranks have written cannot be read.
    """
    holders: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, piece, holder, digest in _copies(run):
        holders[name, piece][digest].append(holder)
    kinds: dict[str, list[tuple[str, dict[str, list[int]]]]] = defaultdict(list)
    for (name, _), found in holders.items():
        if len(found) > 1:
            kinds[pattern_of(name)].append((name, found))
    return [_finding(kind, some, step) for kind, some in kinds.items()]


def _copies(run: str) -> Iterator[tuple[str, str, int, str]]:
    for path in sorted(glob.glob(os.path.join(glob.escape(run), FOLDER, "*.json"))):
        try:
            with open(path, encoding="utf-8") as file:
                yield from json.load(file)
        except (OSError, ValueError) as error:
            raise MachineError(f"{path} cannot be read", why=str(error)) from None


def _finding(kind: str, found: Sequence[tuple[str, dict[str, list[int]]]], step: int) -> Finding:
    names = tuple(dict.fromkeys(name for name, _ in found))
    groups = sorted(found[0][1].values(), key=len, reverse=True)
    ranks = " and ".join(_shown(group) for group in groups[:_SHOWN])
    why = "copies of one parameter must be equal to the bit: a rank has missed an update, or made another one"
    text = f"weight of {kind} differs between {ranks}, after step {step}: {why}"
    return Finding(text, step, "weight", names, None, math.inf)


def _shown(ranks: Sequence[int]) -> str:
    numbers = ", ".join(map(str, sorted(ranks)[:_SHOWN])) + (", ..." if len(ranks) > _SHOWN else "")
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"
