"""What a tuned kernel holds for: the architecture of the GPU, and the versions of ROCm and hipBLASLt."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from typing import NamedTuple

from primus_bench.benchmarks.gemm import hipblaslt
from primus_bench.benchmarks.gemm.problem import Problem
from primus_bench.tuning.calls import COMMAND
from primus_core.errors import MachineError, PrimusError
from primus_machine.facts import Facts

__all__ = ["INSTALL", "Stack", "ask", "different", "find", "of_facts", "require_same"]

INSTALL = (
    "build the clients of hipBLASLt (./install.sh -c in its folder of ROCm/rocm-libraries), and add the folder with "
    f"{COMMAND} to PATH, or set ROCM_PATH to the ROCm that has it in bin"
)
_DEVICE = re.compile(r"^Device ID [0-9]+ : (.*?) ?(gfx[0-9a-f]+)", re.MULTILINE)
_SMALL = Problem(128, 128, 128)
_WORDS = {"architecture": "GPU architecture", "rocm": "ROCm", "hipblaslt": "hipBLASLt"}


class Stack(NamedTuple):
    """Each of them; empty: not known."""

    architecture: str = ""
    rocm: str = ""
    hipblaslt: str = ""
    """Its version, and that of its code."""
    device: str = ""

    @property
    def git_version(self) -> str:
        """The version of hipBLASLt's code, as tuning files have it."""
        return self.hipblaslt.rpartition(" ")[2]

    def __str__(self) -> str:
        known = ((_WORDS[name], getattr(self, name)) for name in _WORDS)
        return ", ".join(f"{what} {value}" for what, value in known if value)


def find(environ: Mapping[str, str]) -> str:
    """`hipblaslt-bench` on PATH, or in the ROCm that ROCM_PATH names; empty: in neither."""
    folders = [environ.get("PATH", ""), os.path.join(environ.get("ROCM_PATH") or "/opt/rocm", "bin")]
    return shutil.which(COMMAND, path=os.pathsep.join(filter(None, folders))) or ""


def of_facts(facts: Facts) -> Stack:
    """What the machine says without starting anything."""
    names = [gpu.architecture for gpu in facts.gpus if gpu.vendor == "amd"]
    return Stack(architecture=names[0] if names else "", rocm=facts.rocm)


def ask(bench: str, environ: Mapping[str, str], facts: Facts) -> Stack:
    """What a small multiplication by `hipblaslt-bench` says of itself and of the GPU.

    Raises:
        MachineError: it cannot run here, or does not say on what it runs.
    """
    try:
        text = hipblaslt.call((bench, *hipblaslt.command(_SMALL, None, 0, 1)[1:]), environ)
    except PrimusError as error:
        fix = "tuning needs an AMD GPU that hipBLASLt supports: primus direct -- preflight"
        raise MachineError(f"{COMMAND} cannot run here", why=error.why or error.what, fix=fix) from None
    known = of_facts(facts)
    device = _DEVICE.search(text)
    found = Stack(
        device[2] if device else known.architecture,
        known.rocm,
        hipblaslt.version(text.splitlines()),
        device[1] if device else "",
    )
    if not (found.architecture and found.hipblaslt):
        what = "the architecture of the GPU" if found.hipblaslt else "its version"
        raise MachineError(f"{COMMAND} does not print {what}", why="results hold for one only", fix="update hipBLASLt")
    return found


def different(recorded: Stack, here: Stack) -> list[str]:
    """What differs, as far as both are known."""
    pairs = [(what, getattr(recorded, name), getattr(here, name)) for name, what in _WORDS.items()]
    return [f"{what} {one}, and here it is {other}" for what, one, other in pairs if one and other and one != other]


def require_same(recorded: Stack, here: Stack, what: str, fix: str) -> None:
    """Refuse results of another architecture or version.

    Raises:
        MachineError: with what differs.
    """
    if found := different(recorded, here):
        raise MachineError(f"{what} is for {'; '.join(found)}", why="indices of kernels differ between them", fix=fix)
