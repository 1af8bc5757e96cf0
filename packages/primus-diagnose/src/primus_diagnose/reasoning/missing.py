"""What the logs do not have, and how to get it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress

from primus_diagnose.inputs.gathered import Gathered
from primus_diagnose.scan.source import Source, blocks
from primus_diagnose.verdict import Finding, Missing

__all__ = ["of", "spans"]

_MOST = 4096
_STATES = re.compile(rb"\s*(?:JobId=\d|(?:\S+[ |]+)?JobID\b|Name:\s+\S+\nNamespace:)")
"""The beginnings of `scontrol show job`, `sacct` and `kubectl describe pod`."""


def of(gathered: Gathered, known: set[int], found: Iterable[Finding], *, is_answered: bool) -> Missing:
    """Ranks without a log; and where there is no answer, what to collect."""
    size = gathered.world_size or (max(known) + 1 if len(known) > 1 else 0)
    absent = [rank for rank in range(min(size, _MOST * 16)) if rank not in known] if known else []
    names = {one.signature for one in found}
    return Missing(tuple(absent[:_MOST]), () if is_answered else tuple(_to_collect(gathered, absent, names)))


def _to_collect(gathered: Gathered, absent: list[int], names: set[str]) -> Iterator[str]:
    if absent:
        yield f"the logs of ranks {spans(absent)}: none is here"
    if any(name.startswith(("nccl.", "gloo.", "c10d.", "collective.")) for name in names):
        yield (
            "flight recorder dumps: run again with TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
            "TORCH_FR_DUMP_TEMP_FILE=<folder>/trace_, and give the folder to `primus diagnose`"
        )
        yield "the log of NCCL or RCCL: run again with NCCL_DEBUG=INFO"
    if not any(one.is_late for one in gathered.sources):
        yield "the kernel's log of each node: `dmesg --time-format iso > dmesg_<node>.log`, as root"
    if not any(map(_is_of_scheduler, gathered.sources)):
        yield (
            "if a scheduler started it, the job's states: on Slurm `scontrol show job <job>`, or `sacct -j <job> "
            "-o JobID,State,ExitCode,NodeList,MaxRSS` where it keeps accounts, on Kubernetes `kubectl describe pod`"
        )


def _is_of_scheduler(one: Source) -> bool:
    """Whether it begins as what a scheduler says of a job."""
    if one.rank is None:  # of ranks, there may be thousands
        with suppress(OSError, EOFError, zlib.error):
            return bool(_STATES.match(next((block for _, block in blocks(one)), b"")))
    return False


def spans(numbers: Iterable[int]) -> str:
    """`0-3, 7`."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in found)
