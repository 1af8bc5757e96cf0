"""Settings as a backend plans with them: what was given, over the framework's defaults, and what Primus adds to them.

What Primus adds stands in one table: planning, errors and the documentation read it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from primus_core.config.document import Document, Path, dotted
from primus_core.errors import AlreadyRefused, ConfigError
from primus_core.journal import record, summary
from primus_core.journal.events import saved_steps
from primus_core.outcome.continuing import last_finite, restart_words
from primus_core.plan.plan import METRICS, Requirement
from primus_core.requirements import missing
from primus_train.backend import BackendCall
from primus_train.kit.options import Checked, Option, examine
from primus_train.overrides import is_typed

__all__ = ["PrimusSetting", "Settings", "as_markdown", "as_options", "own_section"]


@dataclass(frozen=True, slots=True)
class PrimusSetting:
    """One setting of Primus."""

    name: str
    type: str
    default: Any
    meaning: str
    becomes: str
    """What it is in the framework's terms."""
    choices: tuple[Any, ...] = ()
    least: float | None = None


def as_options(table: Sequence[PrimusSetting], prefix: str = "") -> dict[str, Option]:
    """The table in the form in which settings are checked."""
    return {
        prefix + own.name: Option(
            name=prefix + own.name,
            type=own.type,
            default=own.default,
            choices=own.choices,
            optional=own.default is None,
            help=own.meaning,
        )
        for own in table
    }


def as_markdown(table: Sequence[PrimusSetting], framework: str, prefix: str = "") -> str:
    """The table as it stands on the backend's page."""
    rows = [f"| setting | type | default | meaning | in {framework} |", "|---|---|---|---|---|"]
    for own in table:
        kind = " or ".join(f"`{choice}`" for choice in own.choices) or own.type
        kind = f"list of {kind}" if own.type == "list" and own.choices else kind
        default = "" if own.default is None else f"`{str(own.default).lower() if own.type == 'bool' else own.default}`"
        rows.append(f"| `{prefix}{own.name}` | {kind} | {default} | {own.meaning} | {own.becomes} |")
    return "\n".join(rows)


def own_section(
    document: Document, table: Sequence[PrimusSetting], prefix: str, framework: str, others: Sequence[str] = ()
) -> dict[str, Any]:
    """A section that is Primus's alone (`data`), checked against its table; names without the prefix.

    `others` are files with what other tools call settings.

    Raises:
        ConfigError: a name or a value is wrong.
    """
    inside = document.below((prefix,)) if document.data else document
    # Whatever a file sets, a later one or the command line may unset.
    options = {name: replace(one, optional=True) for name, one in as_options(table, f"{prefix}.").items()}
    found = examine(inside, options, framework=f"Primus's {framework} backend", others=others)
    _check_least(found, _least(table, prefix + "."), lambda name: inside.where(tuple(name.split("."))))
    found.mistakes.refuse()
    return {name.removeprefix(prefix + "."): value for name, value in found.given.items()}


class Settings:
    """Settings by dotted name. What was not given has its default; `set` is for what the plan decides.

    What is wrong with them is in `mistakes`, where the backend's own checks put theirs. Who asks for a setting that has
    been refused gets `AlreadyRefused`, which `mistakes` drops: a check says nothing by a value that nobody meant.
    """

    def __init__(
        self,
        document: Document,
        options: Mapping[str, Option],
        table: Sequence[PrimusSetting],
        least: Mapping[str, float],
        framework: str,
        refused: Iterable[Path] = (),
        others: Sequence[str] = (),
    ) -> None:
        """Check what `document` has against the framework's `options`, Primus's `table`, and the `least` of numbers.

        `refused` are paths of values that are not in `document` because they are wrong; the empty one says that
        whole files of them are. `others` are files with what other tools call settings; a later one wins.
        """
        self.document, self.table = document, table
        self.options: dict[str, Option] = {**options, **as_options(table)}
        found = examine(document, self.options, framework=framework, others=others)
        _check_least(found, {**least, **_least(table)}, self.where)
        self.given, self.refused, self.mistakes = found
        self.refused |= {dotted(path) for path in refused}

    def __getitem__(self, name: str) -> Any:
        self.judge(name)
        return self.given[name] if name in self.given else self.options[name].default

    def __contains__(self, name: str) -> bool:
        """Whether it was given."""
        self.judge(name)
        return self.has(name)

    def has(self, name: str) -> bool:
        """Whether it was given, and is right."""
        return name in self.given

    def named(self, prefixes: tuple[str, ...]) -> dict[str, Any]:
        """Those that were given and whose names begin so."""
        return {name: value for name, value in sorted(self.given.items()) if name.startswith(prefixes)}

    def is_open(self, name: str) -> bool:
        """Whether nobody knows its value: it, or a file that may hold it, has been refused."""
        return name in self.refused or ("" in self.refused and not self.has(name))

    def judge(self, name: str) -> None:
        """Nothing, where a check may go by this setting.

        Raises:
            AlreadyRefused: nobody knows its value.
        """
        if self.is_open(name):
            raise AlreadyRefused(name)

    def where(self, name: str) -> str:
        """`file:line` of a setting that was given."""
        return self.document.where(tuple(name.split(".")))

    def default(self, name: str, value: Any) -> bool:
        """Set it unless it was given; whether it was set."""
        if self.is_open(name) or self.has(name):
            return False
        self.given[name] = value
        return True

    def set(self, name: str, value: Any) -> None:
        self.given[name] = value

    def check(self, *checks: Callable[[Self], object]) -> None:
        """Carry out each of the checks; what they raise is kept."""
        for check in checks:
            with self.mistakes:
                check(self)

    def needs(self, requires: Iterable[Requirement], call: BackendCall) -> None:
        """Beside other mistakes, name the files that are not here: nobody will look for them after those."""
        if self.mistakes and call.facts.host.is_here and not call.elsewhere:
            files = (one for one in requires if one.kind in ("file", "folder"))
            self.mistakes.add(*missing(files, call.facts.environ))

    def refuse(self) -> None:
        """End the planning where anything is wrong.

        Raises:
            PrimusError: what is wrong.
            AlreadyRefused: something was before, and the rest is right.
        """
        self.mistakes.refuse()
        if self.refused:
            raise AlreadyRefused(min(self.refused))

    def error(self, name: str, what: str, *, why: str = "", fix: str = "", beside: Iterable[str] = ()) -> ConfigError:
        """An error at the place of a setting; where another one of it was typed, at that of the first such."""
        places = [self.where(one) for one in (name, *beside)]
        where = next(filter(is_typed, places), places[0])
        return ConfigError(what, where=where, why=why, fix=fix)

    def weights_from(self, run: str, made: Sequence[int], at: int | None = None) -> tuple[int, tuple[str, ...]]:
        """Return the step of the checkpoint of `run` whose weights training starts with, and the plan's notes on it.

        Raises:
            ConfigError: there is no whole checkpoint of step `at`, or none from before the loss was not finite.
        """
        step = max(_chosen(run, made, at))
        return step, (f"starts from the weights of step {step} of {os.path.basename(run)}",)

    def start_from(
        self, run: str, made: Sequence[int], end: str, unit: str = "step", at: int | None = None
    ) -> tuple[int, tuple[str, ...]]:
        """The step of the checkpoint of `run` that training continues from, and the plan's notes on it.

        `made`: the steps that have a whole checkpoint; `end`: the setting that says how many steps are asked for;
        `unit`: the framework's word for a step; `at`: the step that was asked for.

        Raises:
            ConfigError: all of them are at that end, or behind it, or the one of step `at` is missing, or none is from
                before the loss was not finite.
        """
        last, name = self[end], os.path.basename(run)
        given, made = made, _chosen(run, made, at, last)
        later = sorted(step for step in made if step >= last)
        if len(later) == len(made):
            raise self.error(
                end,
                f"checkpoint of {unit} {max(made)} of {name} is not before {unit} {last}, where training ends",
                why=f"continuing {name} would leave nothing to train",
                fix=f"ask for more steps: {end}=N, above {max(made)}\n"
                "or start from the first step: --new, without --continue",
            )
        start = max(step for step in made if step < last)
        newer = ", ".join(map(str, later))
        skipped = (f"skips newer checkpoints of {name} ({unit} {newer}): training ends at {unit} {last}",)
        notes = [f"continues from {unit} {start} of {name}", *(skipped if later else ())]
        if at is None and (lost := sorted({*given} - {*made})):
            newer = ", ".join(map(str, lost))
            notes.append(f"skips newer checkpoints of {name} ({unit} {newer}): the loss was not finite after them")
        damaged = [step for step in sorted(saved_steps(run)) if start < step < last and step not in given]
        if damaged and at is None:
            newer = ", ".join(map(str, damaged))
            why = "incomplete, removed, failed to load, or led to a loss that was not finite"
            notes.append(f"skips newer checkpoints of {name} ({unit} {newer}): {why}")
        return start, tuple(notes)

    def own(self) -> dict[str, Any]:
        """Those of Primus, given or not."""
        return {row.name: self[row.name] for row in self.table}

    def framework(self) -> dict[str, Any]:
        """What the worker hands to the framework: all but Primus's own."""
        own = {row.name for row in self.table}
        return {name: value for name, value in sorted(self.given.items()) if name not in own}


def _chosen(run: str, made: Sequence[int], at: int | None, last: float = math.inf) -> Sequence[int]:
    """The steps to choose from: that of step `at`; else those before the loss of `run` was not finite to its end.

    `last`: the step at which training will end.
    """
    if at is None:
        rows = () if record.read(run).last_loss is not None else summary.stream(f"{run}/{METRICS}")
        finite = last_finite(rows)
        if good := [step for step in made if finite is None or step < finite]:
            return good
        name = os.path.basename(run)
        raise ConfigError(
            f"no checkpoint of {name} is from before its loss was not finite",
            why=f"it has: {', '.join(map(str, sorted(made)))}; training from one of them would diverge again",
            fix=f"lower the learning rate, and start with {restart_words(run)}, without another --continue or --from",
        )
    if at not in made:
        name, useful = os.path.basename(run), sorted(step for step in made if step < last)
        raise ConfigError(
            f"{name} has no complete checkpoint of step {at}",
            why=f"it has: {', '.join(map(str, sorted(made)))}"
            + f"; training ends at {last}" * (len(useful) < len(made)),
            fix=f"choose one: {', '.join(f'{name}@{step}' for step in useful)}" if useful else "ask for more steps",
        )
    return [at]


def _least(table: Sequence[PrimusSetting], prefix: str = "") -> dict[str, float]:
    return {prefix + own.name: own.least for own in table if own.least is not None}


def _check_least(found: Checked, least: Mapping[str, float], where: Callable[[str], str]) -> None:
    """Refuse numbers below what makes sense."""
    for name, bound in least.items():
        value = found.given.get(name)
        if isinstance(value, int | float) and value < bound:
            found.refused.add(name)
            found.mistakes.add(ConfigError(f"'{name}' is {value}, and must be at least {bound:g}", where=where(name)))
