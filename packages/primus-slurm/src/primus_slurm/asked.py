"""What is asked of Slurm, by flags, defaults and variables; and what of it Primus refuses."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterable, Mapping
from functools import cached_property

from primus_machine.errors import Mistakes, RequestError, nearest
from primus_slurm.flags import REFUSED, SEVERAL_TASKS, TASKS, Options, nodes_of, refusal, refusal_of_tasks

__all__ = ["KILL", "Asked", "Misspelt", "name_of", "refuse_flags", "refuse_several_tasks"]

KILL = "kill-on-bad-exit"
_ALIKE = 0.85
_OF_ALL = ("dry-run", "env", "preflight", "assume-host", "rendezvous-timeout")
"""Options that every runtime around another has."""
# Options by srun's variables (`SLURM_NPROCS`); others give way to Primus's own options.
_OF_TASKS = {"NTASKS": "ntasks", "NPROCS": "ntasks", "NTASKS_PER_GPU": "ntasks-per-gpu"}
_ADVICE = "see what Slurm says above; `sinfo` lists its partitions and nodes, or fails where no Slurm is set up"
_ENVIRONMENT = {"time": "TIMELIMIT", "array": "ARRAY_INX"}
"""Options whose variable (`SBATCH_PARTITION`, `SLURM_PARTITION`) has another name."""


class Asked:
    """What is asked of Slurm: the flags, and the defaults that nothing says otherwise."""

    def __init__(self, args: argparse.Namespace, environ: Mapping[str, str], *, takes_over: bool = False) -> None:
        self.command, self.environ = args.command, environ
        self.options = Options(args.command)
        self.flags = self.options.read(args.flags, {})
        self.in_job = bool(args.command == "srun" and environ.get("SLURM_JOB_ID") and "jobid" not in self.flags.given)
        self.disabled: frozenset[str] = args.disabled
        configured = [word for word in args.configured if not takes_over or name_of(word) != KILL]
        self.defaults = self.not_given(filter(self._fits, [*configured, *([f"--{KILL}=0"] if takes_over else [])]))

    def _fits(self, word: str) -> bool:
        """Whether a default is one of this command. In a job, those of the allocation were used already."""
        name = name_of(word)
        within = self.in_job or "jobid" in self.flags.given
        return self.options.is_of_steps(name) if within else self.options.fits(name)

    @property
    def values(self) -> dict[str, str]:
        """The options and their values, from defaults and flags."""
        words = (word[2:].partition("=") for word in self.defaults)
        return {**{self.options.name_of(name): value for name, _, value in words}, **self.flags.given}

    def with_renamed(self, name: str, other: str) -> Asked:
        """Return the same with the value of `name` for the option `other`, too."""
        found = copy.copy(self)
        found.flags = self.flags._replace(given={**self.flags.given, other: self.values[name]})
        return found

    def not_given(self, defaults: Iterable[str]) -> list[str]:
        """Those `defaults` that neither a flag nor a variable of Slurm's own says otherwise."""
        kept = self.options.not_given(defaults, self.flags.given)
        kept = [word for word in kept if name_of(word) not in self.disabled]
        prefix = "SBATCH" if self.command == "sbatch" else "SLURM"
        return [word for word in kept if f"{prefix}_{_variable(word)}" not in self.environ]


def _variable(word: str) -> str:
    return _ENVIRONMENT.get(name_of(word)) or name_of(word).upper().replace("-", "_")


def name_of(word: str) -> str:
    """Return the name of a long option: `--name=value`."""
    return word[2:].partition("=")[0]


def refuse_flags(asked: Asked) -> None:
    """What would make something else of the job than one run, whether a flag, a default or a variable asks for it."""
    for name, (why, _) in REFUSED.items():
        variable = f"SBATCH_{_variable(f'--{name}')}"
        if name in asked.values:
            raise refusal(name)
        if asked.command == "sbatch" and variable in asked.environ:
            raise RequestError(
                f"{variable} is set, to '{asked.environ[variable]}', and is not supported",
                why=f"sbatch interprets it as --{name}; {why}",
                fix=f"unset {variable}",
            )


def refuse_several_tasks(asked: Asked) -> None:
    """`srun` may start no second Primus on a node. A batch job's steps have tasks of their own."""
    if asked.command != "srun":
        return
    values = asked.values
    nodes, certain = nodes_of(values, asked.environ if asked.in_job else {})
    known = str(nodes) if certain else ""
    if refused := next(filter(None, (refusal_of_tasks(n, values[n], known) for n in TASKS if n in values)), None):
        raise refused
    for end, name in _OF_TASKS.items():
        value = asked.environ.get(f"SLURM_{end}", "")
        if value and not asked.in_job and name not in values and refusal_of_tasks(name, value, known):
            what = f"SLURM_{end} is set, to '{value}', and is not supported"
            raise RequestError(what, why=f"srun interprets it as --{name}; {SEVERAL_TASKS}", fix=f"unset SLURM_{end}")


class Misspelt:
    """Options that are nearly one that is known. A site, or another scheduler, may have them: they are passed on."""

    def __init__(self, asked: Asked, own: Iterable[str]) -> None:
        """`own`: the option strings of Primus."""
        self.asked = asked
        self._own = own

    @cached_property
    def told(self) -> Mapping[str, str]:
        """What to type instead, by option."""
        options = self.asked.options
        known = [*options.takes, *REFUSED, *_OF_ALL, *(flag.lstrip("-") for flag in self._own)]
        unknown = (name for name in self.asked.values if name not in options.takes and options.fits(name))
        found = {name: nearest(name, known, _ALIKE) for name in unknown}
        return {name: self._instead(name, near) for name, near in found.items() if near}

    def _instead(self, name: str, near: str) -> str:
        """Return the option that `name` means, or why Primus refuses that one."""
        mistakes, meant = Mistakes(), self.asked.with_renamed(name, near)
        for refuse in (refuse_flags, refuse_several_tasks):
            with mistakes:
                refuse(meant)
        refused = "; ".join(f"{one.what} ({one.why}): {one.fix}." for one in mistakes.found)
        return refused or f"did you mean '--{near}'?"

    def notes(self) -> tuple[str, ...]:
        """Return a note on each."""
        what = "is not a known option of Slurm"
        return tuple(f"'--{name}' {what}: {told} It is passed on as it is" for name, told in self.told.items())

    def advice(self) -> str:
        """Return what to do where Slurm refuses the command."""
        lines = [f"'--{name}': {told}" for name, told in self.told.items()]
        return "\n".join([*lines, _ADVICE])
