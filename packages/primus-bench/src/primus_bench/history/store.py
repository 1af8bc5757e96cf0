"""The results of a workspace's benchmarks in an SQLite file: they stay when their runs are deleted."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import quote

from primus_bench.contract import SUITE
from primus_core.errors import MachineError
from primus_core.journal import record
from primus_core.plan.plan import PLAN
from primus_core.runs.lookup import newest_first
from primus_core.runs.snapshot_form import MANIFEST
from primus_machine.files import plain_json, trust
from primus_machine.files.atomic import read_regular
from primus_machine.host import HostRoot
from primus_machine.text import printable

__all__ = ["FILE", "History", "Point", "read", "results_in"]

FILE = "bench-history.sqlite"
_SCHEMA = 3
_MOST_BYTES = 64 << 20
_FIXES = {
    "database is locked": "try again when the process that uses it has ended",
    "database or disk is full": "free space on its disk",
}
"""What SQLite says of a database that is sound: nobody should remove it."""
_VERSION = 1
"""Of the tables."""
_TABLES = f"""
PRAGMA user_version = {_VERSION};
CREATE TABLE IF NOT EXISTS seen (run TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS points (
  run TEXT, time REAL, benchmark TEXT, device TEXT, name TEXT, parameters TEXT, unit TEXT, value REAL, median_s REAL
);
"""
_QUERY = """
SELECT run, time, benchmark, device, name, parameters, unit, value, median_s FROM points
WHERE typeof(time) = 'real' AND typeof(value) IN ('real', 'null')
AND typeof(benchmark) = 'text' AND typeof(device) = 'text' AND typeof(name) = 'text'
ORDER BY time, rowid
"""


class Point(NamedTuple):
    """One case of one run."""

    run: str
    time: float
    """Seconds since the epoch."""
    benchmark: str
    device: str
    name: str
    parameters: str
    unit: str
    value: float | None
    """None: the result was wrong, or nobody knows it."""
    median_s: float | None


class History(NamedTuple):
    """What a workspace has."""

    points: list[Point]
    """The oldest first."""
    unreadable: list[str]
    """Results that cannot be read, each with why."""


def read(workspace: str, host: HostRoot) -> History:
    """The results of a workspace. Those that are new since the last call are taken in.

    Raises:
        MachineError: the database is damaged or locked, or its disk is full.
        PrimusError: it belongs to somebody else.
    """
    path = f"{workspace}/{FILE}"
    if why := trust.of(host.environ).doubt(path):
        raise trust.refused(path, why, "the history of benchmarks")
    if os.path.isdir(path):  # nobody should be told to remove a folder with all that is in it
        fix = f"move it away: mv {shlex.join((path, path + '.old'))}"
        raise MachineError(f"{path} cannot be read", why="it is a folder", fix=fix)
    try:
        with closing(_open(path, workspace)) as database, database:
            unreadable = _take_in(database, workspace)
            return History([Point(*row) for row in database.execute(_QUERY)], unreadable)
    except sqlite3.DatabaseError as error:
        damaged = f"remove it: rm {shlex.quote(path)}; results whose runs are still there are read again"
        fix = _FIXES.get(str(error), damaged)
        raise MachineError(f"{path} cannot be read", why=str(error), fix=fix) from None


def _open(path: str, workspace: str) -> sqlite3.Connection:
    """The database; where it or the workspace cannot be written, a copy in memory."""
    if os.path.lexists(path) and not os.path.isfile(path):
        raise sqlite3.DatabaseError("it is not a regular file")
    writable = os.access(workspace, os.W_OK) and (os.access(path, os.W_OK) or not os.path.exists(path))
    database = sqlite3.connect(path if writable else ":memory:", timeout=30)
    if not writable and os.path.exists(path):
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as saved:
            saved.backup(database)
    _require_known(path, database)
    database.executescript(_TABLES)
    return database


def _require_known(path: str, database: sqlite3.Connection) -> None:
    """Refuse what a later version wrote: it may hold results whose runs are deleted, so nobody should remove it.

    Raises:
        MachineError: it did.
    """
    [version] = database.execute("PRAGMA user_version").fetchone()
    if version > _VERSION:
        why = f"its version is {version}; this one knows up to {_VERSION}"
        raise MachineError(f"{path} is of a later primus-bench", why=why, fix="update primus-bench")


def _take_in(database: sqlite3.Connection, workspace: str) -> list[str]:
    """Add the results of new runs; those that cannot be read, which are tried again."""
    seen, unreadable = {run for (run,) in database.execute("SELECT run FROM seen")}, []
    for name, _ in newest_first(workspace):
        run = printable(name)
        if run in seen or os.path.islink(f"{workspace}/{name}"):
            continue
        found, wrong = _results(f"{workspace}/{name}")
        points = [point for path, one in found for point in _points(run, os.path.getmtime(path), one)]
        if found:  # some of them may have been there beside one that could not be read
            database.execute("DELETE FROM points WHERE run = ?", (run,))
        database.executemany("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", points)
        if found and not wrong:
            database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (run,))
        unreadable += [printable(f"{name}/{one}") for one in wrong]
    return unreadable


def results_in(directory: str) -> list[str]:
    """The names of the JSON files in the directory of a run that are not Primus's own.

    Raises:
        OSError: it cannot be read.
    """
    own = (record.FILE, PLAN, MANIFEST)
    return sorted(name for name in os.listdir(directory) if name.endswith(".json") and name not in own)


def _results(directory: str) -> tuple[list[tuple[str, Mapping[str, Any]]], list[str]]:
    """The results of a run by path, and the names of those that cannot be read, each with why."""
    try:
        names = results_in(directory)
    except OSError:
        return [], []
    found, wrong = [], []
    for name in names:
        try:
            data = plain_json.loads(read_regular(f"{directory}/{name}", _MOST_BYTES).decode())
            if _is_result(data):
                found.append((f"{directory}/{name}", data))
        except (OSError, ValueError) as error:
            wrong.append(f"{name} ({error.strerror if isinstance(error, OSError) else error})")
    # a training may have JSON of any program
    return found, wrong if wrong and record.read(directory).task in ("", "bench") else []


def _is_result(data: Any) -> bool:
    """Whether it is a benchmark's.

    Raises:
        ValueError: it is, and damaged.
    """
    if not isinstance(data, dict) or data.get("schema") != _SCHEMA or not isinstance(data.get("cases"), list):
        return False
    if data.get("benchmark") == SUITE:  # whose own results are beside it
        return False
    if "benchmark" in data:
        _points("", 0.0, data)
    return "benchmark" in data


def _points(run: str, time: float, found: Mapping[str, Any]) -> list[Point]:
    """The cases of a result.

    Raises:
        ValueError: it is damaged.
    """
    try:
        device = printable(str((found.get("device") or {}).get("name") or "unknown"))
        return [
            Point(run, time, printable(str(found["benchmark"])), device, printable(str(case["name"])),
                  json.dumps(case["parameters"], sort_keys=True), printable(str(case["unit"])),
                  _real(case["value"]), _real(case["median"]))
            for case in found["cases"]
        ]  # fmt: skip
    except KeyError as error:
        raise ValueError(f"a case has no {error}") from None
    except (TypeError, AttributeError):
        raise ValueError("a case or the device has another form") from None


def _real(value: Any) -> float | None:
    """A number as SQLite stores it: it has no integer beyond 64 bits."""
    found = plain_json.number(value)
    return None if found is None else float(found)
