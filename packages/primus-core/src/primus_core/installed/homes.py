"""Which package of ours brings a name that is not installed here. Only a hint: nothing is looked up by it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from primus_machine import packages

__all__ = ["MEANT", "OURS", "SCHEDULERS", "home_of", "how_to_install", "names"]

_HOMES: Mapping[str, Mapping[str, str]] = {
    "tasks": {
        "analyze": "primus-preflight",
        "bench": "primus-bench",
        "benchmark": "primus-bench",
        "data": "primus-data",
        "preflight": "primus-preflight",
        "run": "primus",
        "train": "primus-train",
        "verify": "primus-verify",
    },
    "commands": {
        "bench": "primus-bench",
        "ci": "primus-bench",
        "data": "primus-data",
        "diagnose": "primus-diagnose",
        "logs": "primus-runs",
        "models": "primus-train",
        "report": "primus-report",
        "runs": "primus-runs",
        "stop": "primus-runs",
    },
    "runtimes": {"container": "primus-container", "slurm": "primus-slurm"},
    "schedulers": {"slurm": "primus-slurm"},
    "backends": {name: f"primus-{name}" for name in ("torchtitan", "megatron", "maxtext")},
}
SCHEDULERS = {
    "slurm": (
        ("SLURM_", "SLURMD_"),
        "SLURM_NODEID",
        ("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    )
}
"""Of our packages' schedulers: how the names of their variables begin, the one that each process on a node has, and
those with the number of nodes. A node, and a saved run, may have some where the package is not.
"""
MEANT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("run", "launch", "start", "local", "localhost"), ("direct",)),
    "srun": ("slurm", "srun"),
    **dict.fromkeys(("sbatch", "submit"), ("slurm", "sbatch")),
    **dict.fromkeys(("docker", "podman"), ("container",)),
}
"""Words that people type first, and the runtime that they mean."""
OURS = frozenset(package for homes in _HOMES.values() for package in homes.values())
"""Our packages beside the kernel's."""
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "primus": ("primus-runs", *_HOMES["runtimes"].values()),
    "primus-train": ("primus-runs",),
    "primus-data": ("primus-runs", "primus-train"),
    **dict.fromkeys(_HOMES["backends"].values(), ("primus-runs", "primus-train", "primus-data")),
    "primus-bench": ("primus-page", "primus-runs", "primus-train", "primus-data"),
    "primus-report": ("primus-page", "primus-runs"),
    "primus-verify": ("primus-page", "primus-runs", "primus-train"),
}
"""Packages of ours that these need, too: pip finds none of them by itself in a checkout."""
_NEWER_PYTHON = {"primus-maxtext": (3, 12), "primus-megatron": (3, 12)}  # where pip would name no version that fits


def names(kind: str) -> frozenset[str]:
    """The names of that kind that our packages bring."""
    return frozenset(_HOMES.get(kind, {}))


def home_of(kind: str, name: str) -> str:
    """The package of ours that has it; empty: none."""
    return _HOMES.get(kind, {}).get(name, "")


def how_to_install(package: str) -> str:
    """How to install a package of ours, which may not be possible with this Python."""
    needed, here = _NEWER_PYTHON.get(package, (3, 0)), sys.version_info[:2]
    major, minor = needed
    before = f"with Python {major}.{minor} or later (this is {here[0]}.{here[1]}): " if here < needed else ""
    return f"{before}{_pip_install(package)}"


def _pip_install(package: str) -> str:
    """From the checkout that this package was installed from, where that is known: the names are on no index."""
    import shlex

    missing = [*(name for name in _NEEDS.get(package, ()) if not packages.version_of(name)), package]
    checkout = os.path.dirname(packages.installed_from("primus-core"))
    beside = [os.path.join(checkout, name) for name in missing]
    if checkout.startswith("/") and all(map(os.path.isdir, beside)):
        return f"pip install {shlex.join(beside)}"
    return f"in a checkout of Primus: pip install {' '.join(f'packages/{name}' for name in missing)}"
