"""Explain why a run failed, from its logs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from primus_core.config import system
from primus_core.errors import RequestError
from primus_core.request.arguments import Parser, parse_segment
from primus_core.runs.lookup import resolve, workspace
from primus_diagnose.diagnosis import of_gathered
from primus_diagnose.inputs import this_node
from primus_diagnose.inputs.find import gather
from primus_diagnose.signatures.catalogue import load
from primus_diagnose.text import listed, render
from primus_machine.host import HostRoot

__all__ = ["parser", "run"]

_EPILOG = """examples:
  primus diagnose latest
  primus diagnose quickstart --json
  primus diagnose slurm-4711.out dmesg_node17.log
  primus diagnose /shared/logs/job-4711
  primus diagnose --list

RUN is a run directory, a run's name, an experiment's name or a job's number (its newest run), or `latest`. It also
reads logs of other tools: torchrun, srun, Kubernetes. Exit code 0: the logs were read, even if no cause was found."""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus diagnose", epilog=_EPILOG, description="Explain why a run failed, from its logs.")
    parser.add_argument("paths", nargs="*", metavar="RUN|FOLDER|FILE", help="a run, folders with logs, or log files")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.add_argument("--full", action="store_true", help="show all findings, also evidence and noise")
    parser.add_argument("--list", action="store_true", help="list the known failures, and the package or file of each")
    parser.add_argument(
        "--signatures",
        action="append",
        default=[],
        metavar="PATH",
        help="add the signatures in this file or folder to those of primus.yaml (repeatable)",
    )
    parser.add_argument(
        "--workspace", metavar="DIR", help="the folder of the runs (default: from primus.yaml, or output)"
    )
    return parser


def run(words: Sequence[str], layer: str) -> int:
    """Diagnose, or list the signatures."""
    args = parse_segment(parser(), words)
    host = HostRoot()
    named = (os.path.normpath(os.path.join(host.cwd(), path)) for path in args.signatures)
    own = (*system.load(host, layer).signature_files, *named)
    if args.list:
        catalogue = load(host, own)
        rows = [(one.id, one.role, one.title, catalogue.sources[one.id]) for one in catalogue]
        sys.stdout.write(listed(sorted(rows)))
        return 0
    if not args.paths:
        raise RequestError("nothing to diagnose", fix="name a run (`latest`), a folder with logs, or log files")
    paths = [_path(path, args.workspace, host, layer) for path in args.paths]
    gathered = gather(paths, host)
    if len(paths) == 1:
        gathered.sources += this_node.kernel_log(host, gathered.record)
    verdict = of_gathered(load(host, own), gathered, host)
    sys.stdout.write(f"{json.dumps(verdict.to_dict(), indent=1)}\n" if args.json else render(verdict, full=args.full))
    return 0


def _path(word: str, asked: str | None, host: HostRoot, layer: str) -> str:
    """The path that a word names: what is there, or a run of the workspace."""
    is_file = word.endswith((".log", ".out", ".err", ".txt", ".json", ".gz"))
    if (os.path.exists(word) or is_file) and not asked:
        return word
    return resolve(word, workspace(asked, host, layer), host)
