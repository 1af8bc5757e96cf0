"""The runs of a workspace, found and listed: thousands in a moment, so each costs one small file to read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from primus_core.contracts.scheduler import Job
from primus_core.errors import RequestError, suggestion
from primus_core.files import plain_json, trust
from primus_core.files.atomic import regular
from primus_core.host import HostRoot
from primus_core.journal.metrics import is_step
from primus_core.plan.plan import METRICS
from primus_core.runs import lease, names
from primus_core.runs.names import Name, parse_name
from primus_core.runs.saved import is_run, metadata
from primus_core.runs.status import Standing, standings

__all__ = ["LATEST", "Run", "find", "last_metrics", "of_standing", "resolve", "workspace"]

LATEST = "latest"
"""Names the newest run of a workspace."""
_TAIL_BYTES = 8192
"""Some twenty lines of metrics."""


class Run(NamedTuple):
    """A run as a list shows it. None and empty: not known."""

    directory: str
    name: str
    started: float | None
    """Seconds since the epoch."""
    status: str
    """One of `saved.STATES`."""
    task: str = ""
    framework: str = ""
    model: str = ""
    duration_s: float | None = None
    last_step: int | None = None
    last_loss: float | None = None
    parent: str = ""
    """The run that this one replays, or whose hook or rank started it."""
    continues: str = ""
    """The run whose checkpoint it started from."""
    host: str = ""
    job_id: str = ""
    """Its scheduler's number for it."""
    reason: str = ""
    """Why its job waits, in the scheduler's words; why its status is unknown."""
    owner: str = ""
    """Whose directory it is, where it is another user's."""


def workspace(asked: str | None, host: HostRoot, layer: str = "") -> str:
    """The folder of the runs: the one that is asked for, that of the system config with `layer` on top, or `output`."""
    from primus_core.config import system  # a person who names the folder needs no config

    return asked or system.load(host, layer).workspace or "output"


def find(workspace: str, host: HostRoot | None = None) -> Iterator[Run]:
    """The runs in `workspace`, newest first. Each is read when its turn comes."""
    host = host or HostRoot()
    runs = [(f"{workspace}/{name}", known) for name, known in _newest_first(workspace)]
    for (directory, _), stands in zip(runs, standings(runs, host), strict=True):
        yield of_standing(directory, stands, host)


def _newest_first(workspace: str) -> list[tuple[str, dict[str, Any] | None]]:
    """Names of the runs, by the time in the name. The metadata too, of those that had to be read to tell."""
    found: list[tuple[tuple[str, int, str], str, dict[str, Any] | None]] = []
    for name, parsed in _folders(workspace):
        known = None if parsed else metadata(f"{workspace}/{name}")
        if parsed:
            found.append(((parsed.stamp, parsed.number, name), name, None))
        elif known:
            found.append(((_stamp(known.get("started")), 1, name), name, known))
    found.sort(key=lambda run: run[0], reverse=True)
    return [(name, known) for _, name, known in found]


def _folders(workspace: str) -> Iterator[tuple[str, Name | None]]:
    """The folders that may be runs. A link is one under a run's name (moved elsewhere), not as `<exp_name>`."""
    try:
        with os.scandir(workspace) as entries:
            for entry in entries:
                parsed = parse_name(entry.name)
                if entry.is_dir(follow_symlinks=parsed is not None):
                    yield entry.name, parsed
    except OSError:
        return


def _stamp(started: Any) -> str:
    """A time as names have it."""
    seconds = _number(started)
    try:
        return names.stamp(seconds) if seconds is not None else ""
    except (OverflowError, ValueError, OSError):
        return ""


def of_standing(directory: str, stands: Standing, host: HostRoot) -> Run:
    """A run as a list shows it, from how it stands."""
    state, known, job = stands
    step, loss, ended = known.get("last_step"), known.get("last_loss"), _number(known.get("ended"))
    started = _number(known.get("started"))
    if state in ("running", "lost", "started", "unwatched"):
        last = last_metrics(directory)
        step, loss = last.get("step"), last.get("loss")
        ended = host.now() if state == "running" else _number(last.get("time"))
    return Run(
        directory,
        os.path.basename(directory),
        started,
        state,
        task=_text(known.get("task")),
        framework=_text(known.get("framework")),
        model=_text(known.get("model")),
        duration_s=ended - started if ended is not None and started is not None else None,
        last_step=step if isinstance(step, int) and not isinstance(step, bool) else None,
        last_loss=_number(loss),
        parent=_other(known, "parent"),
        continues=_other(known, "continues"),
        host=_text(known.get("host")),
        job_id=_text(known.get("job_id")) or (job.number if job else ""),
        reason=_reason(state, directory, job, host),
        owner=_stranger(directory),
    )


def _reason(state: str, directory: str, job: Job | None, host: HostRoot) -> str:
    """Why its job waits, or why nobody knows here whether it runs."""
    held = lease.look(directory, host) if state == "started" else None
    unknown = f"unknown from here: {held.sign_of_life()}" if held else ""
    return unknown or (job.reason if job and state == "pending" else "")


def _stranger(directory: str) -> str:
    """The name of the account that a directory belongs to; empty: it is the person's own."""
    try:
        uid = os.stat(directory).st_uid
    except OSError:
        return ""
    return "" if uid == os.geteuid() else trust.account(uid)


def _other(known: Mapping[str, Any], relation: str) -> str:
    """The name of another run that the metadata knows."""
    other = known.get(relation)
    return _text(other.get("run_id")) if isinstance(other, dict) else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def last_metrics(directory: str) -> dict[str, Any]:
    """The newest step in a run's `metrics.jsonl`; empty where there is none. Reads the file's end only."""
    for line in reversed(_tail(f"{directory}/{METRICS}").split(b"\n")[:-1]):
        try:
            row = plain_json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int) and is_step(row):
            return row
    return {}


def _tail(path: str) -> bytes:
    try:
        with open(path, "rb", opener=regular) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
            return file.read()
    except OSError:
        return b""


def resolve(name_or_path: str, workspace: str, host: HostRoot) -> str:
    """The absolute directory of a run: by path, by run id, by `exp_name` (its newest run), or `latest` of all.

    Raises:
        RequestError: there is none; with a suggestion.
    """
    base = os.path.join(host.cwd(), workspace)
    if name_or_path == LATEST:
        names = [name for name, _ in _newest_first(base)[:1]]
        candidates = [os.path.join(base, name) for name in names]
    elif "/" in name_or_path:
        candidates = [os.path.join(host.cwd(), os.path.expanduser(name_or_path))]
    elif name_or_path:
        candidates = [os.path.join(base, name_or_path), *_of_experiment(base, name_or_path)]
        candidates += [os.path.join(host.cwd(), name_or_path)]
    else:
        candidates = []
    for path in (_followed(candidate, host) for candidate in candidates):
        if path and is_run(path):
            return path
    raise _unknown(name_or_path, workspace, base)


def _of_experiment(base: str, exp_name: str) -> list[str]:
    """The newest run of an experiment that has lost its link."""
    runs = [name for name, _ in _newest_first(base) if (parsed := parse_name(name)) and parsed.exp_name == exp_name]
    return [os.path.join(base, name) for name in runs[:1]]


def _followed(path: str, host: HostRoot) -> str:
    """The path, absolute; that of the run where it is the link to an experiment's newest."""
    path = os.path.abspath(path)
    if os.path.islink(path) and not parse_name(os.path.basename(path)):
        if os.lstat(path).st_uid not in trust.of(host.environ).uids:  # it could lead to any run
            trust.say(path, f"the link belongs to {trust.owner(os.lstat(path).st_uid)}", f"the link {path}")
            return ""
        return os.path.abspath(os.path.join(os.path.dirname(path), os.readlink(path)))
    return path


def _unknown(asked: str, workspace: str, base: str) -> RequestError:
    names = [name for name, _ in _newest_first(base)]
    if not names:
        return RequestError(
            f"there is no run '{asked}': no runs in {workspace}",
            fix="give a path, or the folder of the runs as --workspace DIR",
        )
    known = {*names, *(parsed.exp_name for name in names if (parsed := parse_name(name))), LATEST}
    return RequestError(
        f"there is no run '{asked}' in {workspace}",
        fix=suggestion(os.path.basename(asked), known) or "`primus runs list` shows the runs",
    )
