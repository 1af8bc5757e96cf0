"""A framework's argument list as data, and settings checked against it without the framework.

A backend ships one JSON file per supported version: `{"version": ..., "options": {"training.steps": {"type": "int",
"default": 10000, "help": ...}, ...}}`, generated from the framework itself.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from primus_core.config.document import Document, Path, dotted
from primus_core.errors import ConfigError, Mistakes, PrimusError, nearest, suggestion
from primus_core.request import former
from primus_train.overrides import is_alone, is_typed, lacks_value, meant_at_top, no_section, typed_words

__all__ = ["Checked", "Option", "check", "examine", "load"]

_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "list": (list,),
    "dict": (dict,),
}


@dataclass(frozen=True, slots=True)
class Option:
    """One argument of a framework. `type` is int, float, bool, str, list, dict or any."""

    name: str
    type: str
    default: Any = None
    choices: tuple[Any, ...] = ()
    optional: bool = False
    help: str = ""
    least: float | None = None
    most: float | None = None


def load(path: str | FilePath) -> tuple[str, dict[str, Option]]:
    """The framework's version and its options by dotted name, from a shipped schema."""
    data = json.loads(FilePath(path).read_text(encoding="utf-8"))
    options = {
        name: Option(name=name, **{**row, "choices": tuple(row.get("choices", ()))})
        for name, row in data["options"].items()
    }
    return data["version"], options


_SECTIONS = {"data", "model"}
"""Beside the framework's settings, where a backend reads them itself."""


class Checked(NamedTuple):
    """What became of settings."""

    given: dict[str, Any]
    """Those that are right, flat by dotted name."""
    refused: set[str]
    """The names of those that are wrong, and of what was probably meant by a name that is unknown."""
    mistakes: Mistakes


def _other_names(paths: Iterable[str]) -> dict[str, str]:
    """Return what other tools call settings of a framework, and the names here, from shipped files of rows."""
    files = (tomllib.loads(FilePath(path).read_text(encoding="utf-8")) for path in paths)
    return {name: here for file in files for name, here in file.items()}


def check(document: Document, options: Mapping[str, Option], *, framework: str) -> dict[str, Any]:
    """The settings in `document` (nested), flat by dotted name, each known to `options` and of its type.

    An integer where a float belongs becomes one, and 0 or 1 where a switch belongs.

    Raises:
        ConfigError: what is wrong, all of it, each with file and line.
    """
    found = examine(document, options, framework=framework)
    found.mistakes.refuse()
    return found.given


def examine(
    document: Document, options: Mapping[str, Option], *, framework: str, others: Sequence[str] = ()
) -> Checked:
    """The same, for those who go on with what is right. `others`: files with what other tools call settings."""
    checked = Checked({}, set(), Mistakes())
    _Walk(options, framework, others, checked).walk(document.data, (), document)
    return checked


class _Walk(NamedTuple):
    options: Mapping[str, Option]
    framework: str
    others: Sequence[str]
    checked: Checked

    def walk(self, data: Mapping[str, Any], path: Path, document: Document) -> None:
        for key, value in data.items():
            with self.checked.mistakes:
                self.setting(key, value, path, document)

    def setting(self, key: str, value: Any, path: Path, document: Document) -> None:
        here = (*path, key)
        name = dotted(here)
        option = self.options.get(name)
        if option and isinstance(value, Mapping) and value and option.type not in ("dict", "any"):
            inner = str(next(iter(value)))
            if any(known.rpartition(".")[2] == inner for known in self.options):  # Megatron's `optimizer.lr` is `lr`
                error, meant = self.unknown((*here, inner), document)
                self.checked.refused.update({name, *meant})
                raise error
        if option is not None:
            self.checked.refused.add(name)
            self.checked.given[name] = _typed(option, value, document.where(here))
            self.checked.refused.discard(name)
        elif any(known.startswith(name + ".") for known in self.options):
            self.walk(_section(value, here, document), here, document)
        elif "." in key and all(key.split(".")):
            nested: dict[str, Any] = {key.split(".", 1)[0]: {key.split(".", 1)[1]: value}}
            marks = Document({}, {(*path, *key.split(".")): document.where(here), path: document.where(here)})
            self.walk(nested, path, marks)
        else:
            error, meant = self.unknown(here, document, value)
            # Of what is not a setting of this section nobody knows what else follows from it.
            self.checked.refused.update(meant if meant and meant <= self.options.keys() else {*meant, ""})
            raise error

    def unknown(self, path: Path, document: Document, value: Any = None) -> tuple[ConfigError, set[str]]:
        """Return the error for a name that the framework does not have, and the names that were probably meant."""
        where = document.where(path)
        options = typed_words(where)
        typed = tuple("".join(options).lstrip("-").partition("=")[0].split("."))
        path = typed if typed[: len(path)] == path else path  # the whole name, where its section is unknown
        prefix = "".join(f"{part}." for part in path[:-1])
        beside = {name[len(prefix) :].split(".")[0] for name in self.options if name.startswith(prefix)}
        known = f"known in '{prefix[:-1]}': {', '.join(sorted(beside))}" if prefix and beside else ""
        beside |= set() if prefix else _SECTIONS
        what = f"{self.framework} has no setting '{dotted(path)}'"
        if instead := former.instead("train", dotted(path)):
            return ConfigError(what, where=where, fix=instead, options=options), set()
        if path[0] == "env" and len(path) == 2:
            fix = f"variables are options of the runtime: --env {path[1]}=VALUE"
            error = ConfigError(what, where=where, fix=fix, kind="misplaced", options=options, meant=f"--env {path[1]}")
            return error, set()
        if switch := self.switched_off(dotted(path)):
            right = f"{'--' * options[0].startswith('--')}{switch}=false" if options and is_alone(where) else None
            fix = right or f"set its opposite, '{switch}'"
            return ConfigError(what, where=where, fix=fix, options=options, meant=right), {switch}
        here, fix = self.otherwise(dotted(path))
        if fix:
            return ConfigError(what, where=where, fix=fix), {here}
        alike = {name for name in beside if bool(_NOT.match(name)) == bool(_NOT.match(str(path[-1])))}
        meant = self.meant(prefix, str(path[-1]), alike)
        if not meant or path[0] == "overrides":
            fix, key = meant_at_top(where)
            if fix:
                return ConfigError(what, where=where, fix=fix, options=options, meant=key), set()
        single = f"did you mean '{meant[0]}'?" if len(meant) == 1 else ""
        fix = single or (f"set one of {', '.join(meant)}" if meant else former.instead("train", str(path[-1])))
        why = "" if single else known
        option = self.options.get(meant[0]) if single else None
        wrong = _refused(option, value) if option else None
        if wrong and value is not None:
            more = "; ".join(filter(None, (wrong.why, wrong.fix)))
            fix += f"\nits value is wrong, too: {wrong.what}; {more}"
        is_one = option and options and (option.type == "bool" or not is_alone(where)) and not wrong
        right = f"{'--' * options[0].startswith('--')}{meant[0]}" if is_one else None
        return ConfigError(what, where=where, why=why, fix=fix or "remove it", options=options, meant=right), set(meant)

    def otherwise(self, name: str) -> tuple[str, str]:
        """Return the setting for a name of another tool that has a switch for its value, or another unit, and what to
        write; or empty texts.
        """
        named = _other_names(self.others).get(name.lower().replace("-", "_"), "")
        here, _, unit = named.partition(": ")
        if "=" in named:
            return named.partition("=")[0], f"write {named}"
        return here, f"set {here}, which is {unit}" if unit else ""

    def switched_off(self, name: str) -> str:
        """Return the switch that a name such as `no_rope_fusion` turns off; empty: it is none."""
        section, dot, leaf = name.rpartition(".")
        if _NOT.match(section):
            section, leaf = _NOT.sub("", section), f"no_{leaf}"
        if not (found := _NOT.match(leaf)):
            return ""
        bare = leaf[found.end() :].replace("-", "_")
        names = [f"{section}{dot}{one}{bare}" for one in ("", "apply_", "use_", "add_", "enable_")]
        names += filter(None, [_other_names(self.others).get(bare)])
        return next((one for one in names if one in self.options and self.options[one].type == "bool"), "")

    def meant(self, prefix: str, leaf: str, beside: Collection[str]) -> list[str]:
        """Return what was meant: another tool's name, the beginning of names beside it, a name near it, or one of
        another section (`lr` for `optimizer.lr`).
        """
        word = leaf.lower().replace("-", "_")
        named = _other_names(self.others).get(word, "")
        if named and (not prefix or named.startswith(prefix)):  # Megatron has some of the names without a section
            return [name if name in self.options or not prefix else name[len(prefix) :] for name in named.split(", ")]
        if near := nearest(leaf, beside, _NEARLY):
            return [f"{prefix}{near}"]
        longer = sorted(f"{prefix}{name}" for name in beside if name.startswith(f"{word}_"))
        if 1 < len(longer) <= _FEW:
            return longer
        near = nearest(leaf, beside, _ALIKE)
        if near := near if near and _differ_little(word, near) else self.shortened(prefix, word, beside):
            return [f"{prefix}{near}"]
        if near := "" if beside else nearest(prefix + leaf, self.options, _NEARLY):
            return [near]
        homes = [name for name in self.options if name.rpartition(".")[2] == word]
        return homes or ([] if prefix and beside else list(filter(None, named.split(", "))))

    def shortened(self, prefix: str, word: str, beside: Iterable[str]) -> str:
        """Return the only setting of the section that shortens `word`, or is shortened by it; empty: there is none."""
        found = [name for name in beside if _is_short_for(word, name) and f"{prefix}{name}" in self.options]
        return found[0] if prefix and len(found) == 1 else ""


def _refused(option: Option, value: Any) -> PrimusError | None:
    """Return why a value that was given to another name, in sections or not, is none for this setting."""
    while isinstance(value, Mapping) and len(value) == 1 and option.type != "dict":
        [value] = value.values()
    try:
        _typed(option, value, "")
    except PrimusError as error:
        return error
    return None


def _differ_little(word: str, near: str) -> bool:
    """Whether what two names do not have in common is alike: `enable_nnx` is no misspelt `enable_wandb`."""
    one, other = word.split("_"), near.lower().split("_")
    left, right = ("_".join(part for part in a if part not in b) for a, b in ((one, other), (other, one)))
    return not (left and right) or bool(nearest(left, [right], _ALIKE))


def _is_short_for(word: str, name: str) -> bool:
    """Whether one is the beginning of the other, within a word: `freq` of `frequency`, and not `steps` of `steps_a`."""
    short, long = sorted((word, name.lower()), key=len)
    return len(short) >= _SHORTEST and long.startswith(short) and long[len(short) :].isalpha()


_SHORTEST = 3
_NOT = re.compile(r"(?:no|disable|without)[-_]")
"""How the name of a setting begins that says the opposite of another one."""
_NEARLY, _ALIKE = 0.9, 0.7
"""So near is a misspelt name that is no beginning of several; and one without longer ones."""
_FEW = 8


def _section(value: Any, path: Path, document: Document) -> Mapping[str, Any]:
    """A section; in a file, one whose settings are all commented out is an empty one."""
    if value is None and not is_typed(document.where(path)):  # typed, it would take all settings away
        return {}
    if not isinstance(value, Mapping):
        raise no_section(path, value, document.where(path))
    return value


def _typed(option: Option, value: Any, where: str) -> Any:
    if value is None:
        if option.optional:
            return None
        raise ConfigError(f"'{option.name}' cannot be empty", where=where, fix=f"give it {_wanted(option)}")
    accepted = _TYPES.get(option.type, (object,))
    wrong_bool = isinstance(value, bool) and option.type in ("int", "float")
    if option.type == "str" and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # `tag=42`: what is text may look like a number
    if option.type == "int" and isinstance(value, float) and value.is_integer():
        value = int(value)  # 1e4 steps
    if option.type == "bool" and isinstance(value, int) and value in (0, 1):
        value = bool(value)  # `sequence_parallel: 1`, as in files of AMD's Primus
    if value is True and wrong_bool and is_alone(where):
        raise lacks_value(where)
    _refuse_infinite(option, value, where)
    if wrong_bool or not isinstance(value, accepted):
        given = f"{value!r} is {type(value).__name__}"
        raise ConfigError(
            f"'{option.name}' takes {_wanted(option)}: {given}", where=where, fix=_right_value(option, value)
        )
    _check_range(option, value, where)
    for item in value if isinstance(value, list) else [value]:
        if option.choices and item not in option.choices:
            names = ", ".join(str(choice) for choice in option.choices)
            raise ConfigError(
                f"'{option.name}' cannot be {item!r}",
                where=where,
                why=f"known values: {names}",
                fix=_near_choice(str(item), option) or "use one of them",
            )
    return float(value) if isinstance(value, int) and option.type == "float" else value


def _near_choice(item: str, option: Option) -> str:
    """Return a fix with the choice that was misspelt. `llama3` is no misspelt `llama4`."""
    letters = re.sub(r"\d", "", item)
    known = map(str, option.choices)
    return suggestion(item, [one for one in known if letters == item or re.sub(r"\d", "", one) != letters])


_EXAMPLES = {"int": "2", "float": "0.1", "list": "[1, 2]", "dict": "{name: value}"}
_NUMBER = r"([+-]?\d+(?:[_,]\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?)(\D*)"
"""A text that was meant as a number: its digits, and what stands behind them."""
_UNITS = {"k": (1000, 1024), "m": (1000**2, 1024**2)}
"""What people mean by a letter behind one."""


def _right_value(option: Option, value: Any) -> str:
    """Return what to do about a value of another type."""
    if option.type in ("list", "bool") or option.choices:
        return _right_form(option, value)
    number = re.fullmatch(_NUMBER, value, re.IGNORECASE) if isinstance(value, str) else None
    if not number or option.type not in ("int", "float"):
        return _default_of(option)
    digits, rest = re.sub("[_,]", "", number[1]), number[2].lower()
    if unit := _UNITS.get(rest):
        return f"write all digits: {value} is {' or '.join(f'{float(digits) * one:.0f}' for one in unit)}"
    if rest:
        return f"write a number alone, without '{number[2]}'"
    return "write it without quotes" if digits == value else f"write {digits}"


def _right_form(option: Option, value: Any) -> str:
    if option.type == "list":
        return f"write [{value}]" if isinstance(value, str) else "write a list, for example [1, 2]"
    if option.type != "bool":
        return f"write one of {', '.join(map(str, option.choices))}"
    # `yes`, `no`, `on` and `off` are text since YAML 1.2
    alone = isinstance(value, str) and re.match(r"[A-Za-z_][\w.]*=", value)
    return f"write {option.name}=true, and {value} behind it" if alone else "write true or false"


def _default_of(option: Option) -> str:
    """Return the default; of a setting without one, what a value looks like."""
    if option.default is not None:
        return f"the default is {option.default!r}"
    example = _EXAMPLES.get(option.type)
    return f"write {_wanted(option)}{f', for example {example}' if example else ''}"


def _refuse_infinite(option: Option, value: Any, where: str) -> None:
    """`.nan`, `.inf` and `1e999` are numbers to YAML, and to no framework; in JSON they cannot be written at all."""
    if option.type not in ("str", "bool", "int") and any(not math.isfinite(number) for number in _floats(value)):
        raise ConfigError(
            f"'{option.name}' is {value!r}, which is not a finite number",
            where=where,
            fix=f"give it {_wanted(option)} that is finite; {_default_of(option)}",
        )


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _floats(item)


def _wanted(option: Option) -> str:
    return {
        "int": "a whole number",
        "float": "a number",
        "bool": "true or false",
        "str": "text",
        "list": "a list",
        "dict": "keys and values",
    }.get(option.type, "a value")


def _check_range(option: Option, value: Any, where: str) -> None:
    """Refuse a number that the framework says is too small or too large."""
    if not isinstance(value, int | float):
        return
    if option.least is not None and value < option.least:
        raise ConfigError(f"'{option.name}' is {value}, and must be at least {option.least:g}", where=where)
    if option.most is not None and value > option.most:
        raise ConfigError(f"'{option.name}' is {value}, and must be at most {option.most:g}", where=where)
