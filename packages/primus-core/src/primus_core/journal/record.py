"""The record of a run, `metadata.json`: all that is known of it, as named fields. It is read and written here alone.

Another version of Primus may have written it, or a stranger: a field of another type counts as not known, and fields
that this version does not have stay what they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, TypeVar

from primus_core.journal import RECORD
from primus_machine.files import plain_json
from primus_machine.files.atomic import read_regular, write_atomically
from primus_machine.files.plain_json import number, whole

__all__ = [
    "FILE",
    "SCHEDULER_OF_0_1",
    "Attempt",
    "FirstFailure",
    "OtherRun",
    "RunRecord",
    "SchedulerUsed",
    "read",
    "write",
]

FILE = RECORD
SCHEDULER_OF_0_1 = "slurm"
"""The scheduler of the records that Primus 0.1 wrote, which name none."""
_MOST_BYTES = 1 << 24
"""No run writes so much about itself."""

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class OtherRun:
    """A run that this one replays, continues, or was started by."""

    run_id: str = ""
    directory: str = ""


@dataclass(frozen=True, slots=True)
class SchedulerUsed:
    """The scheduler of the run: its name (`primus.schedulers`), and what its program is."""

    name: str = ""
    flavour: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """What failed first."""

    rank: int = -1
    """-1: no rank; or nobody knows which."""
    what: str = ""
    node_rank: int | None = None
    exit_code: int | None = None
    time: float | None = None
    is_refusal: bool = False
    """The rank refused what was asked of it."""

    always: ClassVar = ("rank", "what")

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of the worker."""

    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    last_step: int | None = None
    """The highest step that it reached."""
    what: str = ""
    """Why it ended."""
    lost_nodes: tuple[str, ...] = ()
    ended_by_others: bool = False
    """Nothing failed: the job was cancelled, preempted, or out of time."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return _plain(self)

    @property
    def is_open(self) -> bool:
        """Whether it has not recorded its end."""
        return self.ended is None and self.exit_code is None and not self.what

    @property
    def always(self) -> tuple[str, ...]:
        """What is written, also if it is not known."""
        return () if self.is_open else ("ended", "exit_code", "last_step", "what")


_OWN: Mapping[str, Sequence[str]] = {"from": ()}
"""Each process says it of itself."""
_SUBMISSION, _NODES, _BOTH = ({"from": names} for names in (("submission",), ("nodes",), ("submission", "nodes")))
"""What these know goes before what the process knows itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run, or one node's part of it. Empty and None: not known.

    Several processes know a run: who submits it, the layer around its nodes, each node. A field says whose word counts.
    Of one that says nothing, what a process does not know itself is taken from the others.
    """

    run_id: str = ""
    status: str = field(default="", metadata=_OWN)
    """`preparing`, `started`, `submitted`, `unwatched`, or how it ended."""
    command: tuple[str, ...] = field(default=(), metadata=_SUBMISSION)
    """The command line as it was typed, without secrets."""
    task: str = ""
    runtime: str = ""
    framework: str = ""
    model: str = ""
    gpu_model: str = field(default="", metadata=_NODES)
    world_size: int | None = field(default=None, metadata=_NODES)
    primus_version: str = ""
    host: str = field(default="", metadata=_OWN)
    user: str = field(default="", metadata=_OWN)
    cwd: str = field(default="", metadata=_OWN)
    pid: int | None = field(default=None, metadata=_OWN)
    started: float | None = field(default=None, metadata=_OWN)
    submitted: float | None = field(default=None, metadata=_SUBMISSION)
    job_id: str = field(default="", metadata=_NODES)
    step_id: str = field(default="", metadata=_NODES)
    node: str = field(default="", metadata=_OWN)
    """As the scheduler calls it."""
    cluster: str = field(default="", metadata=_SUBMISSION)
    scheduler: SchedulerUsed | None = None
    attempts: tuple[Attempt, ...] = field(default=(), metadata=_OWN)
    """The starts of the worker, those of earlier jobs of this run included."""
    continues: OtherRun | None = field(default=None, metadata=_BOTH)
    """The run whose checkpoint this one starts from."""
    started_by: OtherRun | None = field(default=None, metadata=_OWN)
    """The run whose hook or rank started this one."""
    parent: OtherRun | None = field(default=None, metadata=_OWN)
    """That run, or the one that this run replays."""
    signal: str = field(default="", metadata=_OWN)
    """The signal that it got, while it has not ended."""
    ended: float | None = field(default=None, metadata=_OWN)
    exit_code: int | None = field(default=None, metadata=_OWN)
    last_step: int | None = field(default=None, metadata=_OWN)
    last_loss: float | None = field(default=None, metadata=_OWN)
    first_failure: FirstFailure | None = field(default=None, metadata=_OWN)
    reason: str = field(default="", metadata=_OWN)
    """Why a hook or a script ended it, or why it has no checkpoint of its last step."""
    files_changed: Mapping[str, str] = field(default_factory=dict, metadata=_OWN)
    """Files that changed after the run was submitted, which ran with copies of them."""
    plan_differs: tuple[Mapping[str, Any], ...] = field(default=(), metadata=_NODES)
    """Settings that were planned differently than at submission: `key`, `submitted`, `here`."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Fields that this version does not know."""

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return self != RunRecord()

    @property
    def always(self) -> tuple[str, ...]:
        """What is written, also if it is not known."""
        return (*_ALWAYS, *(("first_failure",) if self.ended is not None else ()))

    @property
    def scheduler_name(self) -> str:
        """The scheduler's name; empty: it has none, or Primus 0.1 wrote the record."""
        return self.scheduler.name if self.scheduler else ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {**_plain(self), **self.others}

    def to_whole_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values, what is not known included."""
        known = {one.name: _value(getattr(self, one.name)) for one in fields(self) if one.name != "others"}
        return {**known, **self.others}

    def joined(self, source: str, records: Sequence[RunRecord]) -> RunRecord:
        """Return the same with what other records of the run say: that of its `submission`, or those of its `nodes`.

        Of several, the first one that knows a field counts.
        """
        changed: dict[str, Any] = {
            "others": {name: value for one in (*records[::-1], self) for name, value in one.others.items()}
        }
        for one in (one for one in fields(self) if one.name != "others"):
            sources = one.metadata.get("from")
            counts = not _is_known(getattr(self, one.name)) if sources is None else source in sources
            known = [value for value in (getattr(record, one.name) for record in records) if _is_known(value)]
            if counts and known:
                changed[one.name] = known[0]
        return replace(self, **changed)

    @classmethod
    def of(cls, data: Any) -> RunRecord:
        """The record in the JSON value `data`."""
        if not isinstance(data, dict):
            return cls()
        known = {name: reader(data[name]) for name, reader in _readers(cls) if name in data}
        return cls(**known, others={name: value for name, value in data.items() if name not in known})


_ALWAYS = (
    *("run_id", "command", "task", "runtime", "framework", "model", "gpu_model", "world_size", "primus_version"),
    *("host", "user", "cwd", "pid", "started", "attempts", "continues", "started_by", "parent", "status"),
)


def read(directory: str) -> RunRecord:
    """The record of the run, or of the node's part, in `directory`; an empty one where it cannot be read."""
    try:
        return RunRecord.of(json.loads(read_regular(f"{directory}/{FILE}", _MOST_BYTES)))
    except (OSError, ValueError, RecursionError):
        return RunRecord()


def write(directory: str, record: RunRecord, hide: Callable[[str], str] = str) -> None:
    """Write it, with what `hide` makes of the text.

    Raises:
        OSError: it cannot be written.
    """
    write_atomically(f"{directory}/{FILE}", hide(plain_json.dumps(record.to_dict(), indent=1)))


def _plain(part: Any) -> dict[str, Any]:
    """The fields of a part that are known, as JSON values."""
    always = getattr(part, "always", ())
    found = {f.name: getattr(part, f.name) for f in fields(part) if f.name != "others"}
    return {name: _value(value) for name, value in found.items() if name in always or _is_known(value)}


def _is_known(value: Any) -> bool:
    """Zero is, nothing else that is empty."""
    return value is not None and value is not False and value not in ("", (), {})


def _value(value: Any) -> Any:
    if isinstance(value, OtherRun | SchedulerUsed | FirstFailure | Attempt):
        return _plain(value)
    return [_value(item) for item in value] if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _status(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else "unknown"


def _words(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _part(cls: type[Part], value: Any) -> Part | None:
    if not isinstance(value, dict):
        return None
    return cls(**{name: reader(value[name]) for name, reader in _readers(cls) if name in value})


def _attempts(value: Any) -> tuple[Attempt, ...]:
    parts = (_part(Attempt, item) for item in (value if isinstance(value, list) else ()))
    return tuple(part for part in parts if part)


def _readers(cls: type[Any]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    return _readers_of(cls)  # type: ignore[arg-type]  # a class is hashable, whatever its instances are


@cache
def _readers_of(cls: type[Any]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """The fields of a part, and how each is read: by its type, as it is written above."""
    readers: Mapping[str, Callable[[Any], Any]] = {
        "str": _text,
        "bool": lambda value: value is True,
        "int": lambda value: -1 if whole(value) is None else value,
        "int | None": whole,
        "float | None": number,
        "tuple[str, ...]": _words,
        "tuple[Attempt, ...]": _attempts,
        "tuple[Mapping[str, Any], ...]": _mappings,
        "Mapping[str, str]": _mapping,
        "OtherRun | None": lambda value: _part(OtherRun, value),
        "SchedulerUsed | None": lambda value: _part(SchedulerUsed, value),
        "FirstFailure | None": lambda value: _part(FirstFailure, value),
    }
    named = [(f.name, str(f.type)) for f in fields(cls) if f.name != "others"]
    return tuple((name, _status if name == "status" else readers[kind]) for name, kind in named)
