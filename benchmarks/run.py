"""Ratios of Primus against named peers: `python benchmarks/run.py [--quick] [SUITE ...]`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that `benchmarks` is a package from anywhere

from benchmarks.ratio import Row
from primus_machine.packages import version_of

SUITES = {
    "latency": ("latency", "primus-core"),
    "launch": ("launch", "primus-core"),
    "lines": ("lines", "primus-core"),
    "runs": ("runs", "primus-core"),
    "diagnose": ("diagnose", "primus-diagnose"),
    "preflight": ("preflight", "primus-preflight"),
    "data": ("data", "primus-data"),
    "verify": ("verify", "primus-verify"),
    "throughput": ("throughput", "primus-torchtitan"),
    "maxtext": ("maxtext_run", "primus-maxtext"),
    "megatron": ("megatron_run", "primus-megatron"),
}
"""The module of each, which may need the package that it measures: their environments differ."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)} (default: what is here)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    args = parser.parse_args()
    if unknown := set(args.suites) - set(SUITES):
        parser.error(f"unknown: {', '.join(unknown)}")
    print("| what | against | ratio | from – to | goal | |\n|---|---|---|---|---|---|")
    for name in args.suites or [name for name, (_, package) in SUITES.items() if version_of(package)]:
        for row in import_module(f"benchmarks.{SUITES[name][0]}").rows(quick=args.quick):
            print(_line(row), flush=True)
    return 0


def _line(row: Row) -> str:
    verdict = "" if row.met else "missed"
    sign = "≥" if row.at_least else "≤"
    spread = f"{row.low:.2f} – {row.high:.2f}"
    return f"| {row.what} | {row.against} | {row.ratio:.2f} | {spread} | {sign} {row.goal:g} | {verdict} |"


if __name__ == "__main__":
    raise SystemExit(main())
