"""`primus diagnose` of the logs of many ranks, against `grep -E -f` with the same patterns."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.ratio import Row, paired
from primus_diagnose.scan.prefilter import loosened
from primus_diagnose.signatures.catalogue import built_in

PRIMUS = str(Path(sys.executable).with_name("primus"))
RANKS, BYTES = 1024, 2_000_000
FEW = 8
"""So many of the logs are searched by grep, too: with patterns that count repetitions it takes seconds for each."""
SECONDS = 60.0
"""More than this the command must not take for all of them on two cores."""
MEMORY = 300 << 20
"""More than this the command must not take, however long the logs are."""
LINE = (
    " [2025-11-23 10:{0:02}:{1:02}] iteration {2:8}/   10000 | consumed samples: {3:12} | "
    "elapsed time per iteration (ms): 1234.5 | learning rate: 1.000000E-04 | global batch size:    16 | "
    "lm loss: {4:.6E} | loss scale: 1.0 | grad norm: 0.752 | number of skipped iterations:   0 | "
    "number of nan iterations:   0 |\n"
    "node{5}:3468:3905 [4] NCCL INFO Channel {1:02}/0 : 0[0] -> 1[1]\n"
)
CAUSE = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.31 GiB.\n"


def _generate(folder: Path, ranks: int) -> None:
    """Logs of a run that is well but for one rank."""
    lines = [LINE.format(n // 60 % 60, n % 60, n, 16 * n, 7 - n / 1e5, n % 128) for n in range(BYTES // 330)]
    text = "".join(lines)[:BYTES]
    for rank in range(ranks):
        cause = CAUSE if rank == ranks // 2 else ""
        (folder / f"rank_{rank}.log").write_text(f"{text}\n{cause}", encoding="utf-8")


def _seconds(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - began


def _patterns(path: Path) -> None:
    """Those of the signatures that grep understands, in its own spelling."""
    known = (loosened(pattern) for one in built_in() for pattern in one.patterns)
    plain = (pattern.replace("(?i:", "(").replace("(?:", "(").replace(r"\d", "[0-9]") for pattern in known)
    lines = (pattern for pattern in plain if "*?" not in pattern and "?)" not in pattern)
    path.write_text("\n".join(lines), encoding="utf-8")


def rows(*, quick: bool) -> Iterator[Row]:
    """Wall time on all cores and memory of the largest process, against their limits; the time against grep, too."""
    with tempfile.TemporaryDirectory() as folder:
        logs, few, patterns = (Path(folder) / name for name in ("logs", "few", "patterns"))
        ranks = RANKS // 8 if quick else RANKS
        for place, count in ((logs, ranks), (few, FEW)):
            place.mkdir()
            _generate(place, count)
        _patterns(patterns)
        times = [_seconds((PRIMUS, "diagnose", str(logs))) for _ in range(2 if quick else 3)]
        what = f"{ranks:,} logs, {ranks * BYTES / 1e9:.1f} GB"
        allowed = SECONDS * ranks / RANKS
        yield Row(f"time of primus diagnose, {what}", f"{allowed:.1f} s", tuple(one / allowed for one in times), 1.0)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        yield Row(f"memory of primus diagnose, {what}", "300 MB", (peak / MEMORY,), 1.0)
        ours, peer = (PRIMUS, "diagnose", str(few)), ("grep", "-r", "-E", "-f", str(patterns), str(few))
        ratios = paired(partial(_seconds, ours), partial(_seconds, peer), 2 if quick else 3)
        yield Row(f"time of primus diagnose, {FEW} logs", "grep -E -f with its patterns", ratios, 1.0)
