"""`primus runs`: what was run, how it went, and what changed between two runs."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from primus_core.arguments import Parser, parse_segment
from primus_core.errors import RequestError
from primus_core.host import HostRoot
from primus_core.runs.listing import Run, find, last_metrics, of_standing, resolve, workspace
from primus_core.runs.saved import MANIFEST, STATES, Damaged, Saved, load
from primus_core.runs.standing import standing
from primus_core.secrets import redact, redact_words, secret_values

__all__ = ["parser", "run"]

_EPILOG = """examples:
  primus runs list --status failed -n 10
  primus runs show latest
  primus runs diff small_2026_11_21_101526 small_2026_11_21_153012
  cd $(primus runs path latest)

RUN is a path, a run's name, an experiment's name (its newest run), or `latest`."""
_LIST_EPILOG = """examples:
  primus runs list
  primus runs list /shared/runs --model llama3 -n 20
  primus runs list --status running --json

status: completed, failed, interrupted; running; pending (its job waits in the queue); lost (its process or its job
is gone, and it never said how it ended); started (on another host), submitted (to a scheduler): not known from here;
incomplete (ended before it began); unknown (not written by Primus)"""
_SHOW_EPILOG = """examples:
  primus runs show latest
  primus runs show quickstart --json"""
_DIFF_EPILOG = """examples:
  primus runs diff quickstart latest
  primus runs diff output/small_2026_11_21_101526 /shared/runs/small_2026_11_20_090000 --json"""
_PATH_EPILOG = """examples:
  cd $(primus runs path latest)
  tail -f $(primus runs path quickstart)/logs/rank_0.log"""

_MEANING = {
    "lost": "it never said how it ended, and its process or its job is gone",
    "submitted": "its scheduler has it, and does not say here how it stands",
    "started": "on another host: from here one cannot tell whether it still runs",
    "incomplete": "it was ended before its first process began",
    "unknown": "its metadata.json says nothing that this Primus knows",
}
_COLUMNS = ("run", "status", "task", "model", "backend", "started", "duration", "step", "loss", "job")


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(
        prog="primus runs",
        epilog=_EPILOG,
        description="List runs, look at one, compare two.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the runs of a workspace, newest first", epilog=_LIST_EPILOG)
    listing.add_argument(
        "folder", nargs="?", metavar="WORKSPACE", help="where runs are kept (default: that of primus.yaml, or output)"
    )
    listing.add_argument("--status", choices=STATES, metavar="STATUS", help="only those that stand so")
    listing.add_argument("--model", metavar="TEXT", help="only those whose model's name contains it, in any case")
    listing.add_argument("-n", "--number", type=_number, metavar="N", help="only the newest N of them")
    show = actions.add_parser("show", help="what one asks first about a run", epilog=_SHOW_EPILOG)
    show.add_argument("run", metavar="RUN", help="a path, a run's or an experiment's name, or latest")
    diff = actions.add_parser("diff", help="what changed from one run to another", epilog=_DIFF_EPILOG)
    diff.add_argument("a", metavar="A", help="the run before")
    diff.add_argument("b", metavar="B", help="the run after")
    path = actions.add_parser("path", help="the directory of a run", epilog=_PATH_EPILOG)
    path.add_argument("run", metavar="RUN", help="a path, a run's or an experiment's name, or latest")
    for action in (listing, show, diff, path):
        action.add_argument(
            "--workspace", metavar="DIR", help="where runs are kept (default: that of primus.yaml, or output)"
        )
    for action in (listing, show, diff):
        action.add_argument("--json", action="store_true", help="as JSON")
    return parser


def _number(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"'{text}' is not a number from 1 up")
    return int(text)


def run(words: Sequence[str]) -> int:
    """Do what the action says."""
    args = parse_segment(parser(), words)
    host = HostRoot()
    if args.action == "path":  # a shell takes it as it is: not redacted, and in the file system's own bytes
        sys.stdout.buffer.write(os.fsencode(resolve(args.run, workspace(args.workspace, host), host)) + b"\n")
        return 0
    data, text = _ACTIONS[args.action](args, host)
    shown = json.dumps(_plain(data), indent=1) if args.json else text(data)
    sys.stdout.write(redact(shown, secret_values(host.environ)) + "\n")
    return 0


def _plain(value: Any) -> Any:
    """The value without infinities and what is no number: JSON has neither."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(below) for key, below in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _list(args: Namespace, host: HostRoot) -> tuple[Any, Any]:
    folder = args.folder or args.workspace
    if folder and not os.path.isdir(folder):
        raise RequestError(f"there is no folder {folder}", fix="give the folder that holds the runs")
    place = workspace(folder, host)
    wanted = (run for run in find(place, host) if _is_wanted(run, args))
    runs = [run._asdict() | {"directory": os.path.abspath(run.directory)} for run in islice(wanted, args.number)]
    return runs, lambda found: _listing(found) if found else _none(place, args)


def _is_wanted(run: Run, args: Namespace) -> bool:
    named = not args.model or args.model.lower() in run.model.lower()
    return named and (not args.status or run.state == args.status)


def _none(place: str, args: Namespace) -> str:
    shown = place if place.startswith(("/", ".")) else f"./{place}"
    return f"no {'such ' if args.status or args.model else ''}runs in {_cell(shown)}"


def _listing(runs: Sequence[Mapping[str, Any]]) -> str:
    width = len(_COLUMNS) - (not any(run["job_id"] for run in runs))  # most machines have no scheduler
    return _table([_row(run)[:width] for run in runs], _COLUMNS[:width])


def _row(run: Mapping[str, Any]) -> tuple[str, ...]:
    named = (run["name"], run["state"], run["task"], run["model"], run["framework"])
    step = "" if run["last_step"] is None else str(run["last_step"])
    return (
        *map(_cell, named),
        _clock(run["started"])[:16],
        _duration(run["duration_s"]),
        step,
        _loss(run["last_loss"]),
        _cell(run["job_id"]),
    )


def _table(rows: Sequence[Sequence[str]], headers: Sequence[str], width: int | None = None) -> str:
    from tabulate import tabulate  # 40 ms that JSON and a path do not pay

    return tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True, maxcolwidths=width)


def _cell(value: Any) -> str:
    """A text for the terminal: what would move its cursor or is no text at all is escaped."""
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _clock(seconds: Any) -> str:
    """A moment in local time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds is not None else ""
    except (TypeError, OverflowError, ValueError, OSError):
        return "?"


def _duration(seconds: float | None) -> str:
    """A duration in its two largest units."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    if seconds < 60:
        return f"{max(seconds, 0):.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next(index for index, (count, _) in enumerate(units) if count)
    return " ".join(f"{count} {unit}" for count, unit in units[first : first + 2])


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _show(args: Namespace, host: HostRoot) -> tuple[Any, Any]:
    return _description(resolve(args.run, workspace(args.workspace, host), host), host), _page


_KNOWN = ("task", "runtime", "framework", "model", "primus_version", "host", "user", "cwd", "started", "ended")


def _description(directory: str, host: HostRoot) -> dict[str, Any]:
    """Everything a person asks first, as far as it is there: a run need not be whole to be looked at."""
    stands, plan = standing(directory, host), _json(f"{directory}/plan.json")
    known, listed = stands.known, of_standing(directory, stands, host)
    place = _mapping(plan.get("distributed"))
    words = known.get("command") or plan.get("command")
    return {
        "run_id": known.get("run_id") or listed.name,
        "directory": directory,
        "status": listed.state,
        "reason": listed.reason,
        "exit_code": known.get("exit_code"),
        "job_id": listed.job_id,
        "cluster": known.get("cluster") or "",
        "scheduler": _mapping(known.get("scheduler")),
        "command": list(redact_words(map(str, _list_of(words)))),
        **{name: known.get(name, plan.get(name)) for name in _KNOWN},
        "duration_s": listed.duration_s,
        "parent": listed.parent or plan.get("parent") or "",
        "gpu_model": known.get("gpu_model") or plan.get("gpu_model") or "",
        "nnodes": place.get("nnodes"),
        "gpus_per_node": place.get("gpus_per_node"),
        "world_size": known.get("world_size"),
        "one_per_node": bool(place.get("one_per_node")),
        "code": _json(f"{directory}/code/code.json"),
        "environment": [v for v in _list_of(plan.get("environment")) if isinstance(v, dict) and "name" in v],
        "configs": _files_below(f"{directory}/config"),
        "metrics": last_metrics(directory),
        "first_failure": _mapping(known.get("first_failure")),
        "attempts": [attempt for attempt in _list_of(known.get("attempts")) if isinstance(attempt, dict)],
        "snapshot": _snapshot(directory, listed.state),
    }


def _json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            return _mapping(json.load(file))
    except (OSError, ValueError, RecursionError):
        return {}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _files_below(folder: str) -> list[str]:
    found = (os.path.join(path, name) for path, _, names in os.walk(folder) for name in names)
    return sorted(path for path in found if not path.endswith(".partial"))  # of a run that was killed


def _snapshot(directory: str, state: str) -> dict[str, Any]:
    try:
        load(directory)
    except Damaged as error:
        if state in ("pending", "submitted") and not os.path.exists(f"{directory}/{MANIFEST}"):
            return {"whole": False, "problem": "its first node will write it", "why": ""}
        return {"whole": False, "problem": error.what, "why": error.why}
    return {"whole": True, "problem": "", "why": ""}


def _page(run: Mapping[str, Any]) -> str:
    lines = [f"{label:<10} {_cell(text)}" for label, text in _facts(run) if text]
    variables = [f"  {_cell(v['name'])}={_cell(v.get('value'))}  ({_origin(v)})" for v in run["environment"]]
    configs = [f"  {_cell(path)}" for path in run["configs"]]
    lines += ["", "environment that Primus set", *variables] if variables else []
    return "\n".join(lines + (["", "config", *configs] if configs else []))


def _origin(variable: Mapping[str, Any]) -> str:
    return _cell(": ".join(str(variable[part]) for part in ("origin", "why") if variable.get(part)))


def _facts(run: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    import shlex

    status, code, failure, snapshot = run["status"], run["exit_code"], run["first_failure"], run["snapshot"]
    yield "run", run["run_id"]
    yield "status", _joined(", ", status, run["reason"], code and f"exit code {code}", _MEANING.get(status))
    yield "failure", _failure(failure)
    for number, attempt in enumerate(run["attempts"] if len(run["attempts"]) > 1 else (), 1):
        yield f"attempt {number}", _attempt(attempt)
    yield "directory", run["directory"]
    yield "job", _joined(" ", run["job_id"], _with("on cluster", run["cluster"]), _scheduler(run["scheduler"]))
    yield "command", shlex.join(run["command"])
    yield "started", _joined(" ", _clock(run["started"]), _with("by", run["user"]), _with("on", run["host"]))
    yield "ended", _clock(run["ended"])
    yield "duration", _duration(run["duration_s"])
    yield "in", run["cwd"] or ""
    yield "replay of", run["parent"]
    yield "task", _joined(", ", run["task"], run["framework"], run["model"], _with("primus", run["primus_version"]))
    yield "GPU", run["gpu_model"] or "none that Primus knows"
    yield "ranks", _ranks(run)
    yield "code", _code(run["code"])
    yield "metrics", _metrics(run["metrics"])
    yield "snapshot", "whole" if snapshot["whole"] else _joined("; ", snapshot["problem"], snapshot["why"])


def _joined(separator: str, *parts: Any) -> str:
    return separator.join(str(part) for part in parts if part)


def _with(word: str, value: Any) -> str:
    return f"{word} {value}" if value else ""


def _scheduler(known: Mapping[str, Any]) -> str:
    return f"({_joined(' ', known.get('flavour'), known.get('version'))})" if known else ""


def _failure(failure: Mapping[str, Any]) -> str:
    rank, node = failure.get("rank"), failure.get("node_rank")
    ranked = isinstance(rank, int) and rank >= 0
    where = f"rank {rank}" if ranked else f"node {node}" if isinstance(node, int) and node >= 0 else ""
    return _joined(": ", where, failure.get("what"))


def _attempt(attempt: Mapping[str, Any]) -> str:
    step = attempt.get("last_step")
    return _joined(", ", _clock(attempt.get("started")), _with("to step", step), attempt.get("what"))


def _ranks(run: Mapping[str, Any]) -> str:
    nodes, each = run["nnodes"], run["gpus_per_node"]
    if not isinstance(nodes, int) or not isinstance(each, int):
        return ""
    if run["one_per_node"]:
        where = f"{nodes}: one on each of {nodes} nodes" if nodes > 1 else "1 on one node"
        return f"{where}, with {each} device{'s' if each > 1 else ''}"
    return f"{nodes * each}: {each} on each of {nodes} nodes" if nodes > 1 else f"{each} on one node"


def _code(code: Mapping[str, Any]) -> str:
    if not code.get("root"):
        return _with("not recorded:", code.get("error"))
    commit = _joined(" ", str(code.get("commit") or "no commit")[:12], _with("on", code.get("branch")))
    changes = ", with uncommitted changes (code/diff.patch)" if code.get("dirty") else ""
    return f"{commit}{changes}, in {code['root']}"


def _metrics(row: Mapping[str, Any]) -> str:
    labels = (("step", "{}"), ("steps", "of {}"), ("loss", "loss {:.4f}"), ("tokens_per_second", "{:,.0f} tokens/s"))
    found = [text.format(row[name]) for name, text in labels if isinstance(row.get(name), int | float)]
    return f"step {' '.join(found[:2])}, {', '.join(found[2:])}".rstrip(", ") if found else ""


def _diff(args: Namespace, host: HostRoot) -> tuple[Any, Any]:
    from primus_core.runs.comparison import compare

    a, b = (load(resolve(name, workspace(args.workspace, host), host)) for name in (args.a, args.b))
    results = {"a": _results(a, host), "b": _results(b, host)}
    return {"differences": [row._asdict() for row in compare(a, b)], "results": results}, _differences


def _results(run: Saved, host: HostRoot) -> dict[str, Any]:
    """What a run came to."""
    import statistics

    from primus_core import summary

    rows = summary.read(f"{run.directory}/metrics.jsonl")
    listed = of_standing(run.directory, standing(run.directory, host), host)
    speeds = [row["tokens_per_second"] for row in rows if isinstance(row.get("tokens_per_second"), int | float)]
    return {
        "run": listed.name,
        "directory": run.directory,
        "status": listed.state,
        "duration_s": listed.duration_s,
        "last_step": rows[-1]["step"] if rows else listed.last_step,
        "last_loss": rows[-1]["loss"] if rows else listed.last_loss,
        "tokens_per_second": statistics.median(speeds) if speeds else None,
    }


def _differences(data: Mapping[str, Any]) -> str:
    a, b = data["results"]["a"], data["results"]["b"]
    rows = [[_cell(value) for value in row.values()] for row in data["differences"]]
    names = (_cell(a["run"]), _cell(b["run"]))
    changed = _table(rows, ("category", "what", *names), 60) if rows else "the two runs had the same to start from"
    results = [[label, *(_result(run[key], write) for run in (a, b))] for label, key, write in _RESULTS]
    return f"{changed}\n\n{_table(results, ('result', *names))}"


_RESULTS = (
    ("status", "status", _cell),
    ("duration", "duration_s", _duration),
    ("last step", "last_step", str),
    ("last loss", "last_loss", _loss),
    ("tokens/s", "tokens_per_second", "{:,.0f}".format),
)


def _result(value: Any, write: Any) -> str:
    return "-" if value is None else str(write(value))


_ACTIONS = {"list": _list, "show": _show, "diff": _diff}
