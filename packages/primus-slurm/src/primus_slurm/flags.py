"""The flags of srun and sbatch: which option a word gives, in any of its spellings. What they mean is Slurm's.

The table is data (`slurm.toml` beside this); an option that it lacks passes all the same.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from primus_machine import nodelist
from primus_machine.errors import RequestError, nearest, suggestion

__all__ = [
    "COUNT",
    "ENV",
    "LOSSES",
    "REFUSED",
    "SEVERAL_TASKS",
    "TASKS",
    "Flags",
    "Options",
    "gpus_of_node",
    "nodes_of",
    "refusal",
    "refusal_of_tasks",
    "warned_at_once",
]

ENV = "/usr/bin/env"
"""What srun starts, behind its flags. By its whole path: `--export=NONE` leaves no PATH to look for it."""
_FILE = "slurm.toml"
_COMMANDS = ("srun", "sbatch")
_OTHERS = ("salloc", "squeue", "sinfo", "sacct", "scancel", "scontrol", "sbcast", "sattach", "sprio", "sstat")
COUNT = re.compile("[1-9][0-9]{0,8}")
TASKS = ("ntasks", "ntasks-per-node", "ntasks-per-gpu", "ntasks-per-core", "ntasks-per-socket", "ntasks-per-tres")
LOSSES = {
    **dict.fromkeys(("--nodes", "--ntasks"), ""),
    "--parsable": "the job's number is read from what it prints",
    "--kill-on-bad-exit": "Primus itself ends the other nodes some seconds after one has failed",
    "--signal": "the job gets no signal before its time limit, so it saves no checkpoint then",
    "--requeue": "the job does not start again after a failed node, if the site does not say so",
    "--open-mode": "a job that starts again may overwrite its log",
    "--no-kill": "a failed node ends the job, so that no spare node can replace it",
    "--job-name": "the job has the name that the scheduler gives it",
    "--output": "the job's log is where the scheduler puts it",
    "--ntasks-per-node": "the scheduler must start one task on each node by itself",
    "--cpus-per-task": "the ranks of a node may share fewer CPUs",
    "--cpu-bind": "the ranks may share the CPUs of the step around them",
    "--overlap": "the step may wait for the end of the step around it",
}
"""What is lost without a flag that Primus adds by itself; empty: it cannot do without."""


_NOTHING = ("with this flag, Slurm starts nothing", "use it with srun or sbatch, without Primus")
_REMOVE = "remove it"
REFUSED = {
    **dict.fromkeys(("test-only", "version", "usage", "help"), _NOTHING),
    "array": ("every element of an array would be the same run, in the same run directory", "submit them one by one"),
    "wrap": ("Primus writes the job script", _REMOVE),
    "multi-prog": ("Primus is the program that Slurm starts", _REMOVE),
    "image": (
        "it is an option of the runtime `container`",
        "put the runtime before the task: ... -- container --image IMAGE -- train pretrain --config FILE",
    ),
}
"""What would make something else of the job than one run: why, and what to do."""


def refusal(name: str) -> RequestError:
    """Return the error about one of them."""
    why, fix = REFUSED[name]
    meant = "" if fix == _REMOVE else None
    return RequestError(f"--{name} is not supported", why=why, fix=fix, options=[f"--{name}"], meant=meant)


SEVERAL_TASKS = "srun starts one Primus on each node, which starts the ranks of the node"


def refusal_of_tasks(name: str, value: str, nodes: str) -> RequestError | None:
    """Return the error about one of `TASKS`; None: `value` means one task on each node.

    `nodes`: their number; empty: it is not known.
    """
    if value == {"ntasks-per-node": "1", "ntasks": nodes}.get(name):
        return None
    fix = "request nodes (-N 2), and set GPUS_PER_NODE to use only some GPUs of a node"
    return RequestError(f"--{name}={value} is not supported", why=SEVERAL_TASKS, fix=fix)


class Flags(NamedTuple):
    """The words of a segment, read."""

    own: tuple[str, ...]
    """Those of Primus."""
    passed: tuple[str, ...]
    """Those of Slurm, as they were typed."""
    given: Mapping[str, str]
    """The options among them: the value by the long name; the last one counts, as for Slurm."""


class Options:
    """The options of `command`, srun or sbatch."""

    def __init__(self, command: str) -> None:
        self.command = command

    @cached_property
    def _data(self) -> Mapping[str, Any]:
        with open(os.path.join(os.path.dirname(__file__), _FILE), "rb") as file:
            return tomllib.load(file)

    @cached_property
    def takes(self) -> dict[str, str]:
        """What each long option takes: value, optional, flag."""
        table = {**self._data["both"], **self._data[self.command]}
        return {name: kind for name, (_, kind) in table.items()}

    @cached_property
    def letters(self) -> dict[str, str]:
        """Long options by letter."""
        table = {**self._data["both"], **self._data[self.command]}
        return {letter: name for name, (letter, _) in table.items() if letter}

    def fits(self, name: str) -> bool:
        """Whether the command has the option, or nobody is known to have it."""
        other = "sbatch" if self.command == "srun" else "srun"
        return name in self.takes or name not in self._data[other]

    def is_of_steps(self, name: str) -> bool:
        """Whether it says how srun runs a step, and nothing of an allocation."""
        return name in self._data["srun"]

    def name_of(self, typed: str) -> str:
        """The option's name for a long one as typed: another name of it, or its beginning where that is clear."""
        if typed not in self.takes:
            longer = {self._same(name) for name in self.takes if name.startswith(typed)}
            typed = longer.pop() if len(longer) == 1 else typed
        return self._same(typed)

    def _same(self, name: str) -> str:
        return str(self._data["same"].get(name, name))

    def read(self, words: Sequence[str], own: Mapping[str, bool], segment: str = "") -> Flags:
        """Read `words`. `own`: the options of Primus, and whether they take a value.

        Raises:
            RequestError: a word that is no option, or an option without its value.
        """
        return _Reader(self, own, segment).read(words)

    def not_given(self, defaults: Iterable[str], given: Iterable[str]) -> list[str]:
        """The `defaults` (`--name=value`) that nothing in `given` says otherwise, one of each option."""
        named = {self.name_of(word[2:].partition("=")[0]): word for word in defaults}
        taken = set(given)
        for group in self._data["instead"]:
            if taken & set(group):
                taken |= set(group)
        return [word for name, word in named.items() if name not in taken]


class _Reader:
    def __init__(self, options: Options, own: Mapping[str, bool], segment: str) -> None:
        self.options, self.own_options, self.segment = options, own, segment
        self.own: list[str] = []
        self.passed: list[str] = []
        self.given: dict[str, str] = {}

    def read(self, words: Sequence[str]) -> Flags:
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word.partition("=")[0] in self.own_options:
                self._take(self.own, word, rest, takes_next=self.own_options[word] if "=" not in word else False)
            elif word.startswith("--"):
                self._long(word, rest)
            elif word.startswith("-") and word != "-":
                self._short(word, rest)
            else:
                self._unexpected(word)
        return Flags(tuple(self.own), tuple(self.passed), self.given)

    def _take(self, kept: list[str], word: str, rest: list[str], *, takes_next: bool) -> str:
        """Keep `word`, and the next one where that is its value."""
        kept.append(word)
        if not takes_next:
            return ""
        if not rest:
            raise self._error(f"{word} needs a value", "write its value after it")
        kept.append(rest.pop(0))
        return kept[-1]

    def _long(self, word: str, rest: list[str]) -> None:
        typed, equals, value = word[2:].partition("=")
        name = self.options.name_of(typed)
        kind = self.options.takes.get(name, "flag")
        found = self._take(self.passed, word, rest, takes_next=kind == "value" and not equals)
        self.given[name] = value if equals else found
        if name not in self.options.takes and not equals:
            self._value_of_unknown(rest)

    def _value_of_unknown(self, rest: list[str]) -> None:
        """An option of the site, or of another scheduler that is called as Slurm's: this can only be its value."""
        if rest and not rest[0].startswith("-") and rest[0] not in _COMMANDS:
            self.passed.append(rest.pop(0))

    def _short(self, word: str, rest: list[str]) -> None:
        """`-N4`, `-N 4`, `-vN4`: letters without a value, and one that takes all that follows."""
        meant = f"-{word.partition('=')[0]}"
        if len(word) > 3 and (
            meant in self.own_options or meant[2:] in self.options.takes
        ):  # `-dry-run` is no `-d ry-run`
            raise self._one_dash(word, meant)
        for index, letter in enumerate(word[1:], 2):
            name = self.options.letters.get(letter)
            if not name:
                self.passed.append(word)
                self._value_of_unknown(rest if index == len(word) else [])
                return
            kind, behind = self.options.takes[name], word[index:]
            if kind == "flag":
                self.given[name] = ""
                continue
            found = self._take(self.passed, word, rest, takes_next=kind == "value" and not behind)
            self.given[name] = behind or found
            return
        self.passed.append(word)

    def _one_dash(self, word: str, meant: str) -> RequestError:
        """Return the error about `-ntasks=2`: the one about `--ntasks`, where Primus refuses that."""
        name = self.options.name_of(meant[2:])
        if name in REFUSED:
            return refusal(name)
        is_tasks = self.options.command == "srun" and name in TASKS
        refused = refusal_of_tasks(name, word.partition("=")[2], self.given.get("nodes", "1")) if is_tasks else None
        fix = f"did you mean '{meant}'?"
        return refused or self._error(f"unknown option '{word}'", fix, kind="unknown", options=[word], meant=meant)

    def _unexpected(self, word: str) -> None:
        near = "did you mean 'sbatch'?" if word == "submit" else suggestion(word, _COMMANDS)
        why = f"it is neither an option of {self.options.command} nor the value of one"
        if word in _OTHERS:
            fix = "type it without `primus`" + (": salloc -N 2, and in its shell: primus slurm srun -- <task>"
                                                if word == "salloc" else "")  # fmt: skip
            raise self._error(f"'{word}' is a command of Slurm itself", fix, "Primus starts srun and sbatch")
        if word in _COMMANDS:
            for flag in (passed.partition("=")[0] for passed in self.passed if passed.startswith("--")):
                if meant := nearest(flag, self.own_options):
                    fix = f"did you mean '{meant}'?"
                    raise self._error(f"unknown option '{flag}'", fix, kind="unknown", options=[flag], meant=meant)
            if any(name in REFUSED for name in self.given):  # said of what this error would propose
                raise refusal(next(name for name in self.given if name in REFUSED))
            fix = f"write it first: primus slurm {word} ..."
            raise self._error(f"'{word}' comes after options", fix, why, kind="late", options=[word])
        from primus_core.request import former  # only an error needs it

        fix = former.instead("slurm", word) or near or "remove it, or write `--` before it if the task begins there"
        raise self._error(f"'{word}' is not understood", fix, why, options=[word])

    def _error(self, what: str, fix: str, why: str = "", **fields: Any) -> RequestError:
        text = f"{self.segment}: {what}" if self.segment else what
        return RequestError(text, why=why, fix=fix, where="slurm", **fields)


def nodes_of(values: Mapping[str, str], environ: Mapping[str, str]) -> tuple[int, bool]:
    """How many nodes the job will have, and whether that is certain: `-N 2-4` leaves the choice to Slurm.

    Raises:
        RequestError: `-N` has another form than Slurm takes.
    """
    text = values.get("nodes", "")
    if not re.fullmatch(r"[0-9kKmM,:-]*", text) or re.fullmatch("0+", text):
        raise RequestError(f"-N {text}: not a number of nodes", fix="for example -N 2, or -N 2-4")
    if match := re.fullmatch(r"([0-9]{1,9})([kKmM]?)(-.*)?", text):
        factor = {"": 1, "k": 1024, "m": 1024 * 1024}[match[2].lower()]
        return max(int(match[1]) * factor, 1), not match[3]
    if text:
        return 1, False
    if (hosts := values.get("nodelist", "")) and "/" not in hosts:
        return max(nodelist.host_count(hosts), 1), True
    inherited = environ.get("SLURM_JOB_NUM_NODES") or environ.get("SLURM_NNODES", "")
    return (int(inherited), True) if COUNT.fullmatch(inherited) else (1, not set(TASKS) & values.keys())


def gpus_of_node(values: Mapping[str, str]) -> str:
    """From `--gpus-per-node=[type:]N` or `--gres=gpu[:type][:N]`; empty: they do not say."""
    if match := re.fullmatch(r"(?:[^:,]+:)?([0-9]+)", values.get("gpus-per-node", "")):
        return match[1]
    parts = [part.split("(")[0].split(":") for part in values.get("gres", "").removeprefix("gres/").split(",")]
    counts = [part[-1] if part[-1].isdecimal() else "1" for part in parts if part[0] == "gpu"]
    return str(sum(map(int, counts))) if counts else ""


_EARLY_S = 60
"""So much before its time may a signal come (`man sbatch`, --signal)."""


def warned_at_once(limit: str, signal: str) -> str:
    """A note where `--signal=[R|B:]NAME[@SECONDS]` may come as soon as the job begins, so short is its `--time`."""
    found, before = _seconds(limit), signal.partition("@")[2] or "60"
    if not (signal and found and before.isdecimal() and int(before) + _EARLY_S >= found):
        return ""
    why = f"Slurm sends the signal {before} s before the time limit of {found} s, and may do so {_EARLY_S} s earlier"
    return f"the job may be told to end as soon as it begins: {why}. Give it more time: -t"


def _seconds(limit: str) -> int:
    """Of `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M` or `D-H:M:S`; 0: it is none, or no limit."""
    days, dash, rest = limit.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in (*parts, days or "0")) or len(parts) > 3:
        return 0
    parts = [*parts, "0", "0"] if dash else [*["0"] * (len(parts) < 3), *parts, "0"]
    hours, minutes, seconds = map(int, parts[:3])
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
