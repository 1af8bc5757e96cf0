"""Which package of ours brings a name that is not installed here. Only a hint: nothing is looked up by it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from primus_machine import packages

__all__ = ["SCHEDULERS", "home_of", "how_to_install", "meant", "names", "ours"]

_FILE = os.path.join(os.path.dirname(__file__), "..", "data", "homes.toml")
SCHEDULERS = {
    "slurm": (("SLURM_", "SLURMD_"), "SLURM_NODEID", ("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"))
}
"""Of our packages' schedulers: how the names of their variables begin, the one that each process on a node has, and
those with the number of nodes. A node, and a saved run, may have some where the package is not.
"""


@cache
def _table(name: str) -> Mapping[str, Any]:
    import tomllib

    with open(_FILE, "rb") as file:
        found: Mapping[str, Any] = tomllib.load(file)[name]
    return found


def meant(word: str) -> tuple[str, ...]:
    """The runtime, in words, that people mean who type `word` first; empty: they mean none."""
    return tuple(_table("meant").get(word, ()))


def ours() -> frozenset[str]:
    """Our packages beside the kernel's."""
    return frozenset(package for homes in _table("homes").values() for package in homes.values())


def names(kind: str) -> frozenset[str]:
    """The names of that kind that our packages bring."""
    return frozenset(_table("homes").get(kind, {}))


def home_of(kind: str, name: str) -> str:
    """The package of ours that has it; empty: none."""
    return str(_table("homes").get(kind, {}).get(name, ""))


def how_to_install(package: str) -> str:
    """How to install a package of ours, which may not be possible with this Python."""
    needed, here = _table("newer_python").get(package, [3, 0]), [*sys.version_info[:2]]
    before = "with Python {}.{} or later (this is {}.{}): ".format(*needed, *here) if here < needed else ""
    return f"{before}{_pip_install(package, anew=bool(before))}"


def _pip_install(package: str, *, anew: bool) -> str:
    """From the checkout that this package was installed from, where that is known: the names are on no index."""
    import shlex

    needs = ("primus-machine", "primus-core", *_table("needs").get(package, ()))
    missing = [*(name for name in needs if anew or not packages.version_of(name)), package]
    checkout = os.path.dirname(packages.installed_from("primus-core"))
    beside = [os.path.join(checkout, name) for name in missing]
    if checkout.startswith("/") and all(map(os.path.isdir, beside)):
        return f"pip install {shlex.join(beside)}"
    return f"in a checkout of Primus: pip install {' '.join(f'packages/{name}' for name in missing)}"
