"""A run as its directory holds it: what a replay starts from and what a comparison compares, checked byte by byte.

`load` believes nothing that its checksums do not confirm.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from primus_core.journal import record
from primus_core.journal.record import RunRecord
from primus_core.plan.plan import PLAN
from primus_core.runs.lookup import meant
from primus_core.runs.names import parse_name
from primus_core.runs.snapshot_form import MANIFEST, SCHEMA, parse_env_dump
from primus_core.runs.state import ENDED, is_run
from primus_machine.code.patch import changed_paths
from primus_machine.errors import MachineError, RequestError
from primus_machine.files.atomic import read_below

if TYPE_CHECKING:
    from primus_machine.files.trust import Trust

__all__ = ["Damaged", "Saved", "load"]

_ENVIRONMENT, _PACKAGES, _SYSTEM, _CODE = (
    *("env/primus_env_dump.txt", "env/packages.txt", "env/system_info.json", "code/code.json"),
)
_NEEDED = (PLAN, _ENVIRONMENT, _PACKAGES, _SYSTEM, _CODE)
_PATCH = "code/diff.patch"


class Damaged(MachineError):  # noqa: N818  # as one reads it: `raise Damaged`
    """A run directory that cannot be trusted: incomplete, changed since, or of another schema."""


class Saved(NamedTuple):
    """What a whole snapshot holds."""

    directory: str
    record: RunRecord
    plan: dict[str, Any]
    environment: dict[str, str]
    """The whole environment of the ranks."""
    packages: dict[str, str]
    """Versions by name."""
    system: dict[str, Any]
    code: dict[str, Any]
    """`code.json`, and as `changed` the paths that `diff.patch` changes."""
    configs: dict[str, Any]
    """The files of `config/`, parsed, by name without suffix."""
    schema: int = SCHEMA
    files: Mapping[str, str] = {}
    """The sha256 of every file of the snapshot, by path."""

    def doubt(self, believed: Trust) -> str:
        """Why what the snapshot says is not believed; empty: it is."""
        paths = (f"{self.directory}/{name}" for name in ("", MANIFEST, *self.files))
        return next(filter(None, map(believed.doubt, paths)), "")


def load(directory: str) -> Saved:
    """The snapshot in a run directory, every file of it checked.

    Raises:
        RequestError: it is no run directory.
        Damaged: the snapshot is incomplete, of another schema, or not what was written.
    """
    directory = os.path.abspath(directory)
    if not is_run(directory):
        raise _no_run(directory)
    return _Reader(directory).saved()


def _no_run(directory: str) -> RequestError:
    from primus_machine.errors import suggestion

    parent, name = os.path.split(directory)
    try:
        near = suggestion(name, (entry for entry in os.listdir(parent) if is_run(f"{parent}/{entry}")))
    except OSError:
        near = ""
    what = "is not a run directory" if os.path.exists(directory) else "is not there"
    return RequestError(f"{directory} {what}", fix=near or "`primus runs list` lists the runs")


_WITHOUT_SNAPSHOT = {
    "submitted": ("its job has not started: its first node will write the snapshot", "wait for the job"),
    "unwatched": (
        "it was started from the script of a dry run: Primus did not watch it",
        "start it without --dry-run: `primus runs show {run}` has the command line",
    ),
}
"""Why a run with this status has none, and what to do."""
_REMOVED = (
    f"it ended before it started, {MANIFEST} was removed, or an earlier version of Primus wrote it",
    "`primus runs show {run}` shows what was recorded",
)
_CUT_OFF = (
    f"{MANIFEST}, which is written last, does not exist: the launch ended before the snapshot was complete",
    "start it again with its command line (primus runs show {run})",
)


_OBJECT, _OBJECTS = "an object", "a list of objects"
_FORMS: Mapping[str, Mapping[str, str]] = {
    PLAN: {
        **dict.fromkeys(("place", "distributed", "worker", "config"), _OBJECT),
        **dict.fromkeys(("environment", "steps"), _OBJECTS),
    },
    _SYSTEM: {"gpus": _OBJECTS},
    _CODE: {"omitted": _OBJECTS},
}
"""What comparisons reach into. A plan is looked at as a whole where it is replayed (`replay.saved_plan`)."""


def _is_of(value: Any, form: str) -> bool:
    """Whether a value has a form."""
    if form == _OBJECT:
        return isinstance(value, dict)
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


class _Reader:
    """Reads the files of one snapshot, each checked against the manifest."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.run = os.path.basename(directory)
        self.files: dict[str, Mapping[str, Any]] = {}

    def saved(self) -> Saved:
        self.files = self.manifest()
        texts = {path: self.checked(path, entry) for path, entry in self.files.items()}
        code = {**self.json(_CODE, texts), "changed": list(changed_paths(texts.get(_PATCH, b"")))}
        return Saved(
            directory=self.directory,
            record=RunRecord.of(self.json(record.FILE, {record.FILE: self.read(record.FILE)})),
            plan=self.json(PLAN, texts),
            environment=self.lines(_ENVIRONMENT, texts, parse_env_dump),
            packages=self.lines(_PACKAGES, texts, _packages),
            system=self.json(_SYSTEM, texts),
            code=code,
            configs={os.path.basename(path).rpartition(".")[0]: self.config(path, texts) for path in _configs(texts)},
            files={path: str(entry["sha256"]) for path, entry in self.files.items()},
        )

    def manifest(self) -> dict[str, Mapping[str, Any]]:
        if not os.path.exists(f"{self.directory}/{MANIFEST}"):
            raise self.incomplete()
        data = self.json(MANIFEST, {MANIFEST: self.read(MANIFEST)})
        if data.get("schema") != SCHEMA:
            wrote = record.read(self.directory).primus_version or "see metadata.json"
            raise Damaged(
                f"snapshot schema {data.get('schema')} is not {SCHEMA}",
                why=f"{self.directory} was written by another version of Primus",
                fix=f"use the Primus version that wrote it: {wrote}",
            )
        files = data.get("files")
        if not isinstance(files, dict) or not all(map(_is_entry, files.items())):
            self.damaged(MANIFEST, "it lists no files with checksums")
        for path in _NEEDED:
            if path not in files:
                self.damaged(MANIFEST, f"it does not list {path}")
        return files

    def incomplete(self) -> Damaged:
        status = record.read(self.directory).status
        why, fix = _WITHOUT_SNAPSHOT.get(status, _REMOVED if status in ENDED else _CUT_OFF)
        fix = fix.format(run=self.run) + self.other_run()
        return Damaged(f"{self.run} has no complete snapshot", why=why, fix=fix)

    def other_run(self) -> str:
        """Return which run of the same experiment has a snapshot."""
        exp_name = own.exp_name if (own := parse_name(self.run)) else ""
        runs = meant(exp_name, self.directory) if exp_name else ()
        found = next((os.path.basename(run) for run in runs if os.path.exists(f"{run}/{MANIFEST}")), "")
        return f";\nthe newest run of '{exp_name}' that has one is {found}" if found else ""

    def damaged(self, path: str, why: str) -> NoReturn:
        raise Damaged(f"{self.run}: {path} is damaged", why=why, fix="restore it from a copy, or use another run")

    def read(self, path: str) -> bytes:
        try:
            return read_below(self.directory, path)
        except FileNotFoundError:
            raise Damaged(
                f"{self.run}: {path} is missing",
                why="it was removed after the run had started",
                fix="restore it from a copy, or use another run",
            ) from None
        except PermissionError as error:
            fix = f"its owner can let you read it: chmod -R g+rX {self.directory}"
            raise Damaged(f"{self.run}: {path} cannot be read", why=str(error.strerror), fix=fix) from None
        except OSError as error:
            raise Damaged(f"{self.run}: {path} cannot be read", why=str(error.strerror)) from None

    def checked(self, path: str, entry: Mapping[str, Any]) -> bytes:
        from hashlib import sha256

        data = self.read(path)
        if len(data) != entry["bytes"]:
            self.damaged(path, f"it has {len(data)} bytes, but had {entry['bytes']} when it was written")
        if sha256(data).hexdigest() != entry["sha256"]:
            self.damaged(path, "its checksum has changed since it was written")
        return data

    def json(self, path: str, texts: Mapping[str, bytes]) -> dict[str, Any]:
        try:
            data = json.loads(texts[path])
        except (ValueError, RecursionError) as error:
            self.damaged(path, f"it is not valid JSON: {error}")
        if not isinstance(data, dict):
            self.damaged(path, "it is not a JSON object")
        for name, form in _FORMS.get(path, {}).items():
            if data.get(name) is not None and not _is_of(data[name], form):
                self.damaged(path, f"its '{name}' is {json.dumps(data[name])[:40]}, not {form}")
        return data

    def lines(self, path: str, texts: Mapping[str, bytes], parse: Any) -> dict[str, str]:
        try:
            found: dict[str, str] = parse(texts[path].decode())
        except ValueError as error:
            self.damaged(path, str(error))
        return found

    def config(self, path: str, texts: Mapping[str, bytes]) -> Any:
        if path.endswith(".json"):
            return self.json(path, texts)
        from primus_machine.documents.yaml_text import parse_saved
        from primus_machine.errors import ConfigError

        try:
            return parse_saved(texts[path].decode(), path)
        except (ConfigError, ValueError) as error:
            self.damaged(path, f"it is not valid YAML: {error}")


def _is_entry(item: tuple[str, Any]) -> bool:
    """Whether an item of the manifest is a file's, inside the run directory."""
    path, entry = item
    inside = not path.startswith("/") and ".." not in path.split("/")
    return inside and isinstance(entry, dict) and {"sha256", "bytes"} <= entry.keys()


def _configs(paths: Mapping[str, bytes]) -> list[str]:
    return [path for path in paths if re.fullmatch(r"config/[^/]+\.(json|ya?ml)", path)]


def _packages(text: str) -> dict[str, str]:
    return {name: version for name, _, version in (line.partition("==") for line in text.split("\n") if line)}
