"""`preflight report` of 2,000 nodes, against reading the same files with cat and Python's json."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.ratio import Row, paired

NODES, FINDINGS = 2000, 150
PRIMUS = str(Path(sys.executable).with_name("primus"))
READ = "import glob, json, sys\nfor path in glob.glob(sys.argv[1] + '/*.json'):\n    json.load(open(path))"


def _generate(folder: Path) -> None:
    """Nodes with as many findings as one with eight GPUs and eight adapters has; one in a thousand is slow."""
    from primus_preflight.checks.findings import Finding  # other suites run where this package is not
    from primus_preflight.verdict import node_report
    from primus_preflight.verdict.node_report import NodeReport

    for number in range(NODES):
        speed = 500.0 if number % 1000 == 7 else 600.0 + number % 10
        found = tuple(
            Finding(f"gpu.check-{i // 8}", f"0000:{i % 8:02x}:00.0", "pass", f"{speed:g}", "≥ 450", "TFLOP/s",
                    "data sheet", value=speed, compare="higher")
            for i in range(FINDINGS)
        )  # fmt: skip
        node_report.write(str(folder), NodeReport(f"node{number:04}", found, "MI300X", 8, number))


def _seconds(command: Sequence[str], cwd: str, code: int) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, capture_output=True, check=False)
    assert done.returncode == code, done.stderr
    return time.perf_counter() - began


def rows(*, quick: bool) -> Iterator[Row]:
    """Wall time of the verdict."""
    with tempfile.TemporaryDirectory() as folder:
        reports = Path(folder, "preflight")
        _generate(reports)
        ours = (PRIMUS, "direct", "--", "preflight", "report", str(reports))
        what = f"time of preflight report, {NODES:,} nodes with {FINDINGS} findings"
        for name, peer, goal in (
            ("cat", ("sh", "-c", f"cat {reports}/*.json"), 40.0),
            ("Python's json.load", (sys.executable, "-c", READ, str(reports)), 8.0),
        ):
            pair = partial(_seconds, ours, folder, 1), partial(_seconds, peer, folder, 0)
            yield Row(what, name, paired(*pair, 3 if quick else 11), goal)
        pair = partial(_seconds, (*ours, "--baseline", str(reports)), folder, 1), partial(_seconds, ours, folder, 1)
        yield Row(f"{what} and a baseline", "without", paired(*pair, 3 if quick else 11), 2.0)
