"""A run by the name that a person types: its path, its id, its experiment, or `latest`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence

from primus_core.journal import record
from primus_core.journal.record import RunRecord
from primus_core.runs import names
from primus_core.runs.names import Name, parse_name
from primus_core.runs.snapshot_form import MANIFEST
from primus_core.runs.state import GOING, is_run, state
from primus_machine.errors import RequestError, suggestion
from primus_machine.files import trust
from primus_machine.host import HostRoot

__all__ = ["LATEST", "begun", "meant", "newest_first", "resolve", "workspace"]

LATEST = "latest"
"""Names the newest run of a workspace."""


def workspace(asked: str | None, host: HostRoot, layer: str = "") -> str:
    """The folder of the runs: the one that is asked for, that of the system config with `layer` on top, or `output`."""
    from primus_core.config import system  # a person who names the folder needs no config

    return asked or system.load(host, layer).workspace or "output"


def resolve(name_or_path: str, workspace: str, host: HostRoot, *, has_begun: bool = False) -> str:
    """The absolute directory of a run: by path, by run id, by `exp_name` or the number of a job (its newest run), or
    `latest` of all. `has_begun`: where several runs are meant, not one of a launch that ended before it began.

    Raises:
        RequestError: there is none; with a suggestion.
    """
    base = os.path.join(host.cwd(), workspace)
    for path in (_followed(candidate, host) for candidate in _candidates(name_or_path, base, host)):
        if path and is_run(path):
            return (has_begun and begun(meant(name_or_path, path), host)) or path
    raise _unknown(name_or_path, workspace, base)


def meant(asked: str, path: str) -> Sequence[str]:
    """The runs that a name means, newest first, where it has led to `path`: all of an experiment, or of a workspace."""
    base, word = os.path.dirname(path), os.path.basename(os.path.normpath(asked))
    if word not in (LATEST, _experiment(os.path.basename(path))):
        return [path]
    return [os.path.join(base, name) for name, _ in newest_first(base) if word in (LATEST, _experiment(name))]


def begun(runs: Sequence[str], host: HostRoot) -> str:
    """The first of `runs` that has a snapshot, or may still make one; empty: there is none."""
    return next((run for run in runs if os.path.exists(f"{run}/{MANIFEST}") or state(run, host) in GOING), "")


def _candidates(asked: str, base: str, host: HostRoot) -> Iterator[str]:
    """Where the run may be; an experiment may have lost its link."""
    if "/" in asked:
        yield os.path.join(host.cwd(), os.path.expanduser(asked))
    elif asked:
        yield from [os.path.join(base, asked)] * (asked != LATEST)
        runs = {name: os.path.join(base, name) for name, _ in newest_first(base)}
        yield from [path for name, path in runs.items() if asked in (LATEST, _experiment(name))][:1]
        yield from [os.path.join(host.cwd(), asked)] * (asked != LATEST)
        yield from (path for path in runs.values() if asked[0].isdigit() and record.read(path).job_id == asked)


def _experiment(name: str) -> str:
    return parsed.exp_name if (parsed := parse_name(name)) else ""


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
    names = [name for name, _ in newest_first(base)]
    if not names:
        return RequestError(
            f"there is no run '{asked}': no runs in {workspace}",
            fix="name its path; `primus runs list --workspace DIR` lists the runs of another folder",
        )
    known = {*names, *filter(None, map(_experiment, names)), LATEST}
    where = "" if workspace in ("output", "./output") else f" --workspace {shlex.quote(workspace)}"
    fix = suggestion(os.path.basename(asked), known) or f"`primus runs list{where}` lists the runs"
    return RequestError(f"there is no run '{asked}' in {workspace}", fix=fix)


def newest_first(workspace: str) -> list[tuple[str, RunRecord | None]]:
    """Names of the runs, by the time in the name. The metadata too, of those that had to be read to tell."""
    found: list[tuple[tuple[str, int, str], str, RunRecord | None]] = []
    for name, parsed in _folders(workspace):
        known = None if parsed else record.read(f"{workspace}/{name}")
        if parsed:
            found.append(((parsed.stamp, parsed.number, name), name, None))
        elif known:
            found.append(((_stamp(known.started), 1, name), name, known))
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


def _stamp(started: float | None) -> str:
    """A time as names have it."""
    try:
        return names.stamp(started or 0)
    except (OverflowError, ValueError, OSError):
        return ""
