"""What `primus runs` prints: the list, the page of a run, and the cells of its tables."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from primus_core.outcome.closing import own_variables
from primus_core.plan.plan import Variable
from primus_machine.files.plain_json import number
from primus_machine.text import printable

__all__ = ["aligned", "cell", "duration", "listing", "loss", "page", "table"]

_MEANING = {
    "lost": "its process or job is gone, and it did not record how it ended",
    "submitted": "it was submitted; its scheduler does not report its status here",
    "started": "on another host or in another container: its status is unknown here",
    "unwatched": "started from the script of a dry run: Primus did not watch it, and does not know how it ended",
    "incomplete": "it ended before its first process started",
    "unknown": "its metadata.json cannot be read by this version of Primus",
}
_WIDEST = 255
"""As long as the name of a folder may be."""
_COLUMNS = ("run", "status", "task", "model", "backend", "started", "duration", "step", "loss")
_FURTHER = {"owner": "owner", "job": "job_id", "continues": "continues", "parent": "parent"}
"""Columns that are left out where no run has anything in them."""


def listing(runs: Sequence[Mapping[str, Any]]) -> str:
    """The runs, one in a row."""
    further = {title: name for title, name in _FURTHER.items() if any(run[name] for run in runs)}
    rows = [(*_row(run), *(_short(run[name]) for name in further.values())) for run in runs]
    return aligned([(*_COLUMNS, *further), *rows])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns below the first row, as tabulate's form `simple`; that asks for the type of each of all the cells."""
    widths = [max([len(title) + 2, *map(len, cells)]) for title, *cells in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _row(run: Mapping[str, Any]) -> tuple[str, ...]:
    named = (run["name"], run["status"], run["task"], run["model"], run["framework"])
    step = "" if run["last_step"] is None else _short(run["last_step"])
    return (
        *map(_short, named),
        _clock(run["started"])[:16],
        duration(run["duration_s"]),
        step,
        loss(run["last_loss"]),
    )


def table(rows: Sequence[Sequence[str]], headers: Sequence[str], width: int | None = None) -> str:
    """A table whose cells are no wider than `width`."""
    from tabulate import tabulate  # 40 ms that JSON and a path do not pay

    return tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True, maxcolwidths=width)


def cell(value: Any) -> str:
    """A text for the terminal: what would move its cursor or is no text at all is escaped."""
    return printable(str(value))


def _short(value: Any) -> str:
    """A cell of a list: one run of a stranger's could make every row as wide as a file is long."""
    text = str(value)
    return cell(text if len(text) <= _WIDEST else f"{text[:_WIDEST]}...")


def _clock(seconds: Any) -> str:
    """A moment in local time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds is not None else ""
    except (TypeError, OverflowError, ValueError, OSError):
        return "?"


def duration(seconds: float | None) -> str:
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


def loss(value: float | None) -> str:
    """A loss; empty where there is none."""
    return "" if value is None else f"{value:.4f}"


_MOST_LOGS = 12


def page(run: Mapping[str, Any]) -> str:
    """All that is known of one run."""
    lines = [line for label, text in _facts(run) if text for line in _labelled(label, text)]
    variables = [f"  {cell(v['name'])}={cell(v.get('value'))}  ({_origin(v)})" for v in run["environment"]]
    configs = [f"  {cell(path)}" for path in run["configs"]]
    lines += ["", "environment that Primus set", *variables] if variables else []
    lines += ["", "config", *configs] if configs else []
    logs = [f"  {cell(path)}" for path in run["logs"][:_MOST_LOGS]]
    more = [f"  and {len(run['logs']) - _MOST_LOGS} more"] if len(run["logs"]) > _MOST_LOGS else []
    return "\n".join(lines + (["", "metrics and logs", *logs, *more] if logs else []))


def _labelled(label: str, text: str) -> Iterable[str]:
    """A fact; a further line of it, such as what to do about a failure, stands below."""
    first, *more = str(text).split("\n")
    yield f"{label:<10} {cell(first)}"
    yield from (f"{'':<10} {cell(line)}" for line in more)


def _origin(variable: Mapping[str, Any]) -> str:
    return cell(": ".join(str(variable[part]) for part in ("origin", "why") if variable.get(part)))


def _facts(run: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    import shlex

    status, code, failure, snapshot = run["status"], run["exit_code"], run["first_failure"], run["snapshot"]
    yield "run", run["run_id"]
    yield "status", _joined(", ", status, run["reason"], code and f"exit code {code}", _MEANING.get(status))
    yield "failure", _failure(failure)
    for count, attempt in enumerate(run["attempts"] if len(run["attempts"]) > 1 else (), 1):
        yield f"attempt {count}", _attempt(attempt)
    yield "directory", run["directory"]
    yield "job", _joined(" ", run["job_id"], _with("on cluster", run["cluster"]), _scheduler(run["scheduler"]))
    own = _own_variables(run)
    yield "command", f"{own or ''}{shlex.join(run['command'])}"
    yield "next", "" if own is None else run["next"] and f"{own}{run['next']}"
    yield "owner", run["owner"]
    yield "started", _joined(" ", _clock(run["started"]), _with("by", run["user"]), _with("on", run["host"]))
    yield "ended", _clock(run["ended"])
    yield "duration", duration(run["duration_s"])
    yield "in", run["cwd"] or ""
    yield "continues", run["continues"]
    yield "notes", "\n".join(run["notes"])
    yield ("started by" if run["started_by"] else "replay of"), run["parent"]
    yield "task", _joined(", ", run["task"], run["framework"], run["model"], _with("primus", run["primus_version"]))
    yield "GPU", run["gpu_model"] or "none detected"
    yield "ranks", _ranks(run)
    yield "code", _code(run["code"])
    for path, what in run["files_changed"].items():
        yield "changed", f"{path}: {what} after it was submitted; the run used it as it was"
    for differs in run["plan_differs"]:
        submitted, here = (_value(differs[when]) for when in ("submitted", "here"))
        yield "planned", f"{differs['key']}: {submitted} at submission, {here} on the node"
    yield "metrics", _metrics(run["metrics"])
    yield "saved", _saved(run["checkpoints"])
    yield "wandb", _wandb(run["wandb"])
    yield "verified", ", ".join(f"{layout} {status}" for layout, status in run["verified"].items())
    yield "snapshot", "complete" if snapshot["whole"] else _joined("; ", snapshot["problem"], snapshot["why"])


def _own_variables(run: Mapping[str, Any]) -> str | None:
    """Return the person's variables without which the command would plan another run; None: one is a secret."""
    found = [
        Variable(str(row["name"]), str(row.get("value")), str(row.get("origin")), secret=bool(row.get("secret")))
        for row in run["environment"]
    ]
    return own_variables(found)


def _value(value: Any) -> str:
    """As the console of the launch says it."""
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(value)


def _joined(separator: str, *parts: Any) -> str:
    return separator.join(str(part) for part in parts if part)


def _with(word: str, value: Any) -> str:
    return f"{word} {value}" if value else ""


def _saved(steps: Sequence[int]) -> str:
    return f"{len(steps)} checkpoint{'s' * (len(steps) > 1)}, the newest of step {steps[-1]}" if steps else ""


def _scheduler(known: Mapping[str, Any]) -> str:
    is_known = known.get("flavour") not in (None, "", "unknown")
    return f"({_joined(' ', known['flavour'], known.get('version'))})" if is_known else ""


def _failure(failure: Mapping[str, Any]) -> str:
    rank, node = failure.get("rank"), failure.get("node_rank")
    ranked = isinstance(rank, int) and rank >= 0
    where = f"rank {rank}" if ranked else f"node {node}" if isinstance(node, int) and node >= 0 else ""
    what, *more = str(failure.get("what") or "").partition("\nTraceback ")
    return _joined(": ", where, f"{what}\nthe log has the traceback" if any(more) else what)


def _attempt(attempt: Mapping[str, Any]) -> str:
    step = attempt.get("last_step")
    return _joined(", ", _clock(attempt.get("started")), _with("to step", step), attempt.get("what"))


def _ranks(run: Mapping[str, Any]) -> str:
    nodes, each = run["nnodes"], run["gpus_per_node"]
    if not isinstance(nodes, int) or not isinstance(each, int):
        return ""
    if run["world_size"] == 1 and each == 1:
        return "1 on one node"
    if run["one_per_node"]:
        where = f"{nodes}: one on each of {nodes} nodes" if nodes > 1 else "1 on one node"
        return f"{where}, with {each} device{'s' if each > 1 else ''}"
    return f"{nodes * each}: {each} on each of {nodes} nodes" if nodes > 1 else f"{each} on one node"


def _code(code: Mapping[str, Any]) -> str:
    if not code.get("root"):
        return _with("not recorded:", code.get("error"))
    commit = _joined(" ", str(code.get("commit") or "no commit")[:12], _with("on", code.get("branch")))
    changes = ", with uncommitted changes (code/diff.patch)" if code.get("dirty") else ""
    return f"{commit}{changes}, in {code['root']}{_with('; not recorded:', code.get('error'))}"


def _wandb(folders: Sequence[str]) -> str:
    """Where Weights & Biases keeps the run, and how to send what was written offline."""
    import shlex

    if not folders:
        return ""
    offline = [folder for folder in folders if os.path.basename(folder).startswith("offline-")]
    sync = [f"to upload it: wandb sync {shlex.join(offline)}"] if offline else []
    return "\n".join((os.path.dirname(folders[0]), *sync))


def _metrics(row: Mapping[str, Any]) -> str:
    speed = ("tokens_per_second", "{:,.0f} tokens/s in that step")
    labels = (("step", "{}"), ("steps", "of {}"), ("loss", "loss {:.4f}"), speed)
    found = [text.format(row[name]) for name, text in labels if number(row.get(name)) is not None]
    found += ["loss not finite"] if "loss" in row and row["loss"] is None else []
    return f"step {' '.join(found[:2])}, {', '.join(found[2:])}".rstrip(", ") if found else ""
