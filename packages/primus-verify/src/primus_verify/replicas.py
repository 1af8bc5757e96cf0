"""Whether the ranks that hold the same piece of a parameter hold the same numbers, to the bit."""

from __future__ import annotations

import glob
import json
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from primus_core.errors import MachineError
from primus_machine.units import counted
from primus_train.kit.replicas import FOLDER
from primus_verify.verdict import Finding, pattern_of

__all__ = ["differences"]

_SHOWN = 8


class _Copy(NamedTuple):
    """As a rank has written it."""

    name: str
    piece: str
    holder: int
    digest: str
    is_random: bool


def differences(run: str, step: int, ranks: int) -> list[Finding]:
    """Return what ranks should have in common after the last `step` of a run, and have not, and the other way round.

    Raises:
        MachineError: what the ranks have written cannot be read, or not all `ranks` have written.
    """
    copies = list(_copies(run))
    holders = {one.holder for one in copies}
    if len(holders) < ranks:
        what = f"{len(holders)} of {counted(ranks, 'rank')} recorded what they hold after step {step}"
        missing = sorted(set(range(ranks)) - holders)
        raise MachineError(what, why=f"nothing is known of {_shown(missing)}", fix=f"read the logs in {run}/logs")
    kinds: dict[str, list[tuple[str, Groups]]] = defaultdict(list)
    for (name, _), groups in _grouped(copies, lambda one: (one.name, one.piece), lambda one: one.digest).items():
        if len(groups) > 1:
            kinds[pattern_of(name)].append((name, groups))
    random = [one for one in copies if one.is_random]
    alike = _grouped(random, lambda one: (one.name, one.digest), lambda one: one.piece)
    return [
        *(_unequal(kind, found, step) for kind, found in kinds.items()),
        *(_same_seed(name, groups, step) for (name, _), groups in alike.items() if len(groups) > 1),
    ]


Groups = Sequence[Sequence[int]]
"""Ranks that have the same."""


def _grouped(
    copies: Iterable[_Copy], key: Callable[[_Copy], tuple[str, str]], group: Callable[[_Copy], str]
) -> dict[tuple[str, str], Groups]:
    found: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for one in copies:
        found[key(one)][group(one)].append(one.holder)
    return {one: sorted(groups.values(), key=len, reverse=True) for one, groups in found.items()}


def _copies(run: str) -> Iterator[_Copy]:
    for path in sorted(glob.glob(os.path.join(glob.escape(run), FOLDER, "*.json"))):
        try:
            with open(path, encoding="utf-8") as file:
                yield from (_Copy(*row) for row in json.load(file))
        except (OSError, ValueError) as error:
            raise MachineError(f"{path} cannot be read", why=str(error)) from None


def _unequal(kind: str, found: Sequence[tuple[str, Groups]], step: int) -> Finding:
    names = tuple(dict.fromkeys(name for name, _ in found))
    why = "they must be equal to the bit: a rank has missed an update, or made another one"
    text = f"copies of {kind} differ between {_listed(found[0][1])}, after step {step}: {why}"
    return Finding(text, step, "weight", names, None, math.inf)


def _same_seed(name: str, groups: Groups, step: int) -> Finding:
    text = (
        f"{name} has the same state on {_listed(groups)}, after step {step}: they drop out the same, from equal seeds"
    )
    return Finding(text, step, "seed", (name,), None, math.inf)


def _listed(groups: Groups) -> str:
    return " and ".join(_shown(group) for group in groups[:_SHOWN])


def _shown(ranks: Sequence[int]) -> str:
    numbers = ", ".join(map(str, sorted(ranks)[:_SHOWN])) + (", ..." if len(ranks) > _SHOWN else "")
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"
