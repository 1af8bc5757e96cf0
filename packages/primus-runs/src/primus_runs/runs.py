"""List, show and compare runs: list, show, diff, path."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from primus_core.errors import RequestError
from primus_core.journal.events import CHECKPOINT_SAVED, read_events
from primus_core.journal.record import RunRecord
from primus_core.outcome.continuing import continuing_line
from primus_core.plan.plan import METRICS, PLAN
from primus_core.request.arguments import Parser, parse_segment
from primus_core.runs.lookup import resolve, workspace
from primus_core.runs.names import parse_name
from primus_core.runs.saved import Damaged, load
from primus_core.runs.snapshot_form import MANIFEST
from primus_core.runs.state import STATES
from primus_machine.files import plain_json
from primus_machine.files.atomic import regular
from primus_machine.host import HostRoot
from primus_machine.processes import ranks_of
from primus_machine.secrets.redaction import redact, redact_words, secret_values
from primus_runs.listing import Run, find, last_metrics, of_status
from primus_runs.status import status_of
from primus_runs.view import cell, listing, page

__all__ = ["parser", "run"]

_EPILOG = """examples:
  primus runs list --status failed -n 10
  primus runs show latest
  primus runs diff small_2026_11_21_101526 small_2026_11_21_153012
  cd $(primus runs path latest)

RUN is a path, a run's name, an experiment's name or a job's number (its newest run), or `latest`."""
_LIST_EPILOG = """examples:
  primus runs list
  primus runs list /shared/runs --model llama3 -n 20
  primus runs list --status running --json

status:
  pending      the job waits in the queue
  running      the run is alive
  completed, failed, interrupted
  stopped      a Python hook stopped it
  skipped      a script found nothing to launch
  lost         the process or job is gone without recording an end
  started      unknown: it runs on another host and has not renewed its lease
  submitted    unknown: its scheduler does not answer here
  unwatched    it was started from the script of a dry run
  incomplete   it ended before its first process started
  unknown      its record is not readable"""
_SHOW_EPILOG = """examples:
  primus runs show latest
  primus runs show quickstart --json"""
_DIFF_EPILOG = """examples:
  primus runs diff quickstart latest
  primus runs diff output/small_2026_11_21_101526 /shared/runs/small_2026_11_20_090000 --json"""
_PATH_EPILOG = """examples:
  cd $(primus runs path latest)
  tail -f $(primus runs path quickstart)/logs/rank_0.log"""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(
        prog="primus runs",
        epilog=_EPILOG,
        description="List, show and compare runs.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="List the runs of a workspace, newest first.", epilog=_LIST_EPILOG)
    listing.add_argument(
        "folder", nargs="?", metavar="WORKSPACE", help="the folder of the runs (default: from primus.yaml, or output)"
    )
    listing.add_argument("--status", choices=STATES, metavar="STATUS", help="filter by status")
    listing.add_argument("--model", metavar="TEXT", help="filter by a part of the model's name (case-insensitive)")
    listing.add_argument("-n", "--number", type=_number, metavar="N", help="show only the newest N runs")
    show = actions.add_parser(
        "show", help="Show the status, settings, metrics and failure of a run.", epilog=_SHOW_EPILOG
    )
    show.add_argument("run", metavar="RUN", help="a path, the name of a run or experiment, or latest")
    diff = actions.add_parser("diff", help="Show what changed between two runs.", epilog=_DIFF_EPILOG)
    diff.add_argument("a", metavar="A", help="the first run, as RUN of `primus runs show`")
    diff.add_argument("b", metavar="B", help="the second run")
    path = actions.add_parser("path", help="Print the directory of a run.", epilog=_PATH_EPILOG)
    path.add_argument("run", metavar="RUN", help="a path, the name of a run or experiment, or latest")
    for action in (listing, show, diff, path):
        action.add_argument(
            "--workspace", metavar="DIR", help="the folder of the runs (default: from primus.yaml, or output)"
        )
    for action in (listing, show, diff):
        action.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _number(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"'{text}' is not a number from 1 up")
    return int(text)


def run(words: Sequence[str], layer: str) -> int:
    """Do what the action says."""
    args = parse_segment(parser(), words)
    args.layer = layer
    host = HostRoot()
    if args.action == "path":  # a shell takes it as it is: not redacted, and in the file system's own bytes
        directory = resolve(args.run, workspace(args.workspace, host, args.layer), host)
        sys.stdout.buffer.write(os.fsencode(directory) + b"\n")
        return 0
    data, text = _ACTIONS[args.action](args, host)
    shown = plain_json.dumps(data, indent=1) if args.json else text(data)
    sys.stdout.write(redact(shown, secret_values(host.environ)) + "\n")
    return 0


def _list(args: Namespace, host: HostRoot) -> tuple[Any, Any]:
    folder = args.folder or args.workspace
    if args.folder and args.workspace:
        raise RequestError(f"two folders of runs: '{args.folder}' and --workspace {args.workspace}", fix="name one")
    if folder and not os.path.isdir(folder):
        raise RequestError(f"there is no folder '{folder}'", fix="name the folder of the runs")
    place = workspace(folder, host, args.layer)
    wanted = (run for run in find(place, host) if _is_wanted(run, args))
    runs = [run._asdict() | {"directory": os.path.abspath(run.directory)} for run in islice(wanted, args.number)]
    return runs, lambda found: listing(found) if found else _none(place, args)


def _is_wanted(run: Run, args: Namespace) -> bool:
    named = not args.model or args.model.lower() in run.model.lower()
    return named and (not args.status or run.status == args.status)


def _none(place: str, args: Namespace) -> str:
    shown = place if place.startswith(("/", ".")) else f"./{place}"
    if args.status or args.model:
        return f"no such runs in {cell(shown)}"
    return f"no runs in {cell(shown)}; another folder: --workspace DIR"


def _show(args: Namespace, host: HostRoot) -> tuple[Any, Any]:
    return _description(resolve(args.run, workspace(args.workspace, host, args.layer), host), host), page


_MOST = 1 << 26
"""No file of a run is longer that is read as a whole."""
_KNOWN = ("task", "runtime", "framework", "model", "primus_version", "host", "user", "cwd", "started", "ended")


def _description(directory: str, host: HostRoot) -> dict[str, Any]:
    """Everything a person asks first, as far as it is there: a run need not be whole to be looked at."""
    stands, plan = status_of(directory, host), _json(f"{directory}/{PLAN}")
    known, listed = stands.known, of_status(directory, stands, host)
    place = _mapping(plan.get("distributed"))
    words = known.command or tuple(_list_of(plan.get("command")))
    shown: dict[str, Any] = {
        "run_id": known.run_id or listed.name,
        "directory": directory,
        "status": listed.status,
        "reason": listed.reason or known.reason or _ranks_left(directory, listed.status),
        "exit_code": known.exit_code,
        "job_id": listed.job_id,
        "cluster": known.cluster,
        "scheduler": asdict(known.scheduler) if known.scheduler else {},
        "command": list(redact_words(map(str, words))),
        **{name: getattr(known, name) or plan.get(name) for name in _KNOWN},
        "duration_s": listed.duration_s,
        "owner": listed.owner,
        "parent": listed.parent or plan.get("parent") or "",
        "started_by": known.started_by.run_id if known.started_by else "",
        "continues": listed.continues,
        "notes": list(map(str, _list_of(plan.get("notes")))),
        "next": _next(directory, listed.status, known),
        "gpu_model": known.gpu_model or plan.get("gpu_model") or "",
        "nnodes": place.get("nnodes"),
        "gpus_per_node": place.get("gpus_per_node"),
        "world_size": known.world_size,
        "one_per_node": bool(place.get("one_per_node")),
        "code": _json(f"{directory}/code/code.json"),
        "files_changed": known.files_changed,
        "plan_differs": known.plan_differs,
        "environment": [v for v in _list_of(plan.get("environment")) if isinstance(v, dict) and "name" in v],
        "configs": _files_below(f"{directory}/config"),
        "checkpoints": _kept_steps(directory),
        "wandb": _wandb_runs(directory),
        "verified": _verified(directory),
        "logs": _logs(directory),
        "metrics": last_metrics(directory),
        "first_failure": known.first_failure.to_dict() if known.first_failure else {},
        "attempts": [attempt.to_dict() for attempt in known.attempts],
        "snapshot": _snapshot(directory, listed.status),
    }
    return shown | {name: value for name, value in known.to_whole_dict().items() if name not in shown}


def _ranks_left(directory: str, state: str) -> str:
    """Say that ranks of a run whose Primus is gone still run on this host."""
    left = ranks_of(directory) if state == "lost" else []
    return f"its ranks are still running: processes {', '.join(map(str, left))}; primus stop ends them" if left else ""


def _next(directory: str, state: str, known: RunRecord) -> str:
    """Return the command that continues a run that is the newest of its experiment; empty: there is none."""
    parts = parse_name(os.path.basename(directory))
    link = os.path.join(os.path.dirname(directory), parts.exp_name) if parts else ""
    is_newest = os.path.realpath(link) == os.path.realpath(directory)
    is_refusal = bool(known.first_failure and known.first_failure.is_refusal)
    if not known.framework or state not in ("failed", "interrupted", "stopped", "lost") or is_refusal or not is_newest:
        return ""
    return continuing_line(known.command, directory, known.continues.directory if known.continues else "")


def _kept_steps(directory: str) -> list[int]:
    """The steps of the checkpoints that the run has told of and that are still there. The run may have moved since."""
    found = set[int]()
    for event in read_events(directory):
        step, path = event.get("step"), event.get("path")
        if event.get("event") == CHECKPOINT_SAVED and isinstance(step, int) and isinstance(path, str):
            own = path.partition(f"/{os.path.basename(os.path.abspath(directory))}/")[2]
            if "://" in path or os.path.exists(os.path.join(directory, own) if own else path):
                found.add(step)
    return sorted(found)


def _json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8", opener=regular) as file:
            return _mapping(plain_json.loads(file.read(_MOST)))
    except (OSError, ValueError, RecursionError):
        return {}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _wandb_runs(directory: str) -> list[str]:
    """Return the folders of Weights & Biases below the run's, one for each attempt."""
    import glob

    patterns = (f"{glob.escape(directory)}/{above}wandb/*run-*" for above in ("", "*/", "*/*/"))
    return sorted(path for pattern in patterns for path in glob.glob(pattern) if os.path.isdir(path))


def _verified(directory: str) -> dict[str, str]:
    """Return what `train --verify`, or the task `verify`, found of each layout."""
    layouts = filter(None, map(_mapping, _list_of(_json(f"{directory}/verify.json").get("layouts"))))
    return {str(one.get("layout")): str(one.get("status")) for one in layouts}


def _logs(directory: str) -> list[str]:
    """Return the files that the run writes as it goes: the metrics, and what ranks and launch print."""
    metrics = f"{directory}/{METRICS}"
    return [*([metrics] if os.path.isfile(metrics) else []), *_files_below(f"{directory}/logs")]


def _files_below(folder: str) -> list[str]:
    found = (os.path.join(path, name) for path, _, names in os.walk(folder) for name in names)
    return sorted(path for path in found if not path.endswith(".partial"))  # of a run that was killed


_TO_COME = {
    "pending": "its first node will write it",
    "submitted": "its first node will write it",
    "running": "it is being written",
}
"""Where a run of this status has no snapshot yet."""


def _snapshot(directory: str, state: str) -> dict[str, Any]:
    try:
        load(directory)
    except Damaged as error:
        if state in _TO_COME and not os.path.exists(f"{directory}/{MANIFEST}"):
            return {"whole": False, "problem": _TO_COME[state], "why": ""}
        return {"whole": False, "problem": error.what, "why": error.why}
    return {"whole": True, "problem": "", "why": ""}


def _diff(args: Namespace, host: HostRoot) -> tuple[Any, Any]:
    from primus_runs import diff

    a, b = (load(resolve(name, workspace(args.workspace, host, args.layer), host)) for name in (args.a, args.b))
    return diff.data(a, b, host), diff.text


_ACTIONS = {"list": _list, "show": _show, "diff": _diff}
