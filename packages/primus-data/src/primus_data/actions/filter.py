"""Remove duplicates, foreign languages, bad text, personal data and evaluation questions."""

from __future__ import annotations

import argparse
import os
import sys

from primus_core.errors import RequestError
from primus_core.plan.plan import Requirement
from primus_core.request.arguments import Parser, duration, whole_number
from primus_data.contract import Here
from primus_machine.host import HostRoot

__all__ = ["ACTION"]

_INSTALL = "install it with: pip install 'primus-data[quality]'"


class _Filter:
    name = "filter"
    epilog = """examples:
  primus data filter --list
  primus data filter pipeline.yaml
  primus slurm srun -N 4 -- data filter pipeline.yaml

a pipeline:
  input: shards/*.jsonl.gz
  output: clean
  steps:
    - language: [en]
    - gopher_quality
    - exact_dedup
    - near_dedup: {threshold: 0.8}"""
    is_shared = True

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument("pipeline", metavar="PIPELINE", nargs="?", default="", help="the pipeline file (YAML)")
        parser.add_argument("--list", action="store_true", help="list the steps with their parameters and defaults")
        parser.add_argument(
            "--workers", type=whole_number, default=0, metavar="N", help="processes (default: one per CPU)"
        )
        parser.add_argument(
            "--on-error",
            choices=("stop", "skip"),
            default="stop",
            help="stop at what is not a document, or skip and count it (default: stop)",
        )
        parser.add_argument(
            "--wait",
            type=duration,
            default=3600.0,
            metavar="TIME",
            help="stop after waiting so long for other nodes without progress (default: 1h)",
        )

    def check(self, args: argparse.Namespace, cwd: str) -> tuple[Requirement, ...]:
        if args.list:
            return ()
        if not args.pipeline:
            raise RequestError(
                "no pipeline file named", fix="`primus data filter pipeline.yaml`; `--list` shows the steps"
            )
        from primus_data.quality.pipeline import read

        path = args.pipeline if cwd == os.getcwd() else os.path.join(cwd, args.pipeline)
        pipeline = read(path, HostRoot().environ)
        modules = (Requirement("module", name, _INSTALL) for name in pipeline.modules)
        files = (
            Requirement("file", os.path.join(cwd, path), "correct the path: it is relative to the current folder")
            for path in pipeline.named_files
        )
        return (*modules, *files)

    def run(self, args: argparse.Namespace, here: Here) -> int:
        if args.list:
            from primus_data.quality.listing import listed

            sys.stdout.write(listed())
            return 0
        from primus_data.quality import report, running
        from primus_data.quality.pipeline import read

        pipeline = read(args.pipeline, HostRoot().environ)
        workers = args.workers or HostRoot().cpu_count()
        found = running.run(pipeline, workers, here, skips=args.on_error == "skip", wait_s=args.wait)
        if found:
            sys.stdout.write(f"{report.table(found)}\n\nreport and samples: {pipeline.output.rstrip('/')}.report\n")
        return 0


ACTION = _Filter()
