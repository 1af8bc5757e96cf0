"""Thresholds are data: ours from `data/thresholds.toml`, and a site's own file over them, every key of it checked."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_core.errors import ConfigError, Mistakes, suggestion
from primus_preflight.checks.rule import BOUNDS, Rule

if TYPE_CHECKING:
    from primus_core.config.document import Document
    from primus_preflight.checks.check import Check

__all__ = ["fix_of", "packaged", "with_site"]

_FIX = "check it again: `primus direct -- preflight --only {}`; if it still fails: `srun --exclude=NODE`"
_LIST = "`primus direct -- preflight list`"
_VALUES: Mapping[str, str] = {
    "floor": "a number", "limit": "a number", "allowed": "a list of texts", "severity": '"fail" or "warn"',
    "source": "a text", "fix": "a text", "models": "a table for each model", "share": "a number from 0 to 1",
    "of_speed": "a number from 0 to 1",
}  # fmt: skip
"""What a site may say of a check, and of a GPU model in it."""


@cache
def packaged() -> Mapping[str, Rule]:
    """Our own, by check."""
    import tomllib

    text = (Path(__file__).parents[1] / "data" / "thresholds.toml").read_text(encoding="utf-8")
    groups = tomllib.loads(text)
    return {
        f"{group}.{name}": _rule(f"{group}.{name}", row) for group, rows in groups.items() for name, row in rows.items()
    }


def fix_of(check: str) -> str:
    """What to do where a comparison finds fault with what passed on its node: such a finding carries no fix."""
    rule = packaged().get(check)
    return (rule and rule.remedy) or _FIX.format(check)


def _rule(name: str, row: Mapping[str, Any]) -> Rule:
    models = {model: _frozen(own) for model, own in row.get("models", {}).items()}
    return Rule(name, **{**_frozen(row), "models": models})


def _frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def with_site(checks: Sequence[Check], path: str, environ: Mapping[str, str]) -> tuple[Check, ...]:
    """The checks under the thresholds in a site's file.

    Raises:
        ConfigError: it cannot be read, or a key in it means nothing: all such keys.
    """
    from primus_core.config import files  # yaml, which only a site's file needs

    if os.path.exists(path) and not os.path.isfile(path):
        raise ConfigError("it is not a regular file", where=path, fix="name a file in TOML or YAML")
    document = files.read(path, environ)
    configured = {f"{group}.{name}": row for group, rows in _tables(document).items() for name, row in rows.items()}
    rules = {check.name: check.rule for check in checks}
    mistakes = Mistakes()
    for name, row in configured.items():
        with mistakes:
            _check_known(document, name, rules)
            _check_row(document, _place(name), row, rules[name], mistakes)
    mistakes.refuse()
    return tuple(replace(check, rule=_over(check.rule, configured.get(check.name, {}), path)) for check in checks)


def _check_known(document: Document, name: str, rules: Mapping[str, Rule]) -> None:
    if name not in rules:
        fix = suggestion(name, rules) or f"{_LIST} lists the checks"
        raise ConfigError(f"no check is called '{name}'", where=document.where(_place(name)), fix=fix)


def _place(name: str) -> tuple[str, ...]:
    group, _, rest = name.partition(".")
    return group, rest


def _tables(document: Document) -> Mapping[str, Mapping[str, Any]]:
    for group, rows in document.data.items():
        if not isinstance(rows, Mapping):
            raise ConfigError(
                f"'{group}' is not a table of checks", where=document.where((group,)), fix="write [host.shm]"
            )
    return document.data


def _check_row(document: Document, place: tuple[str, ...], row: Any, rule: Rule, mistakes: Mistakes) -> None:
    """Whether the check of this rule can use the row, so that nothing is taken without effect."""
    if not isinstance(row, Mapping):
        raise ConfigError(
            f"'{'.'.join(place)}' is not a table", where=document.where(place), fix="write floor = 16 below it"
        )
    takes = tuple(key for key in rule.takes if key != "models" or "models" not in place)
    for key, value in row.items():
        with mistakes:
            _check_key(document.where((*place, key)), key, value, rule, takes)
    models = row.get("models", {})
    for model, own in models.items() if isinstance(models, Mapping) and "models" in takes else ():
        with mistakes:
            _check_model(document, (*place, "models", model))
            _check_row(document, (*place, "models", model), own, rule, mistakes)


def _check_key(where: str, key: str, value: Any, rule: Rule, takes: Sequence[str]) -> None:
    if key not in takes:
        raise ConfigError(
            f"unknown key {key!r} of a threshold of {rule.check}",
            where=where,
            why=f"it takes {', '.join(takes)}",
            fix=suggestion(key, takes) or f"see {_LIST} for the keys of other checks",
        )
    if not _fits(key, value):
        unit = f", in {rule.unit}" * (key in ("floor", "limit") and bool(rule.unit))
        raise ConfigError(f"{key} = {value!r}", where=where, fix=f"write {_VALUES[key]}{unit}")


def _fits(key: str, value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
    return {
        "a number": is_number,  # nothing reaches nan
        "a number from 0 to 1": is_number and 0 <= value <= 1,
        "a list of texts": isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value),
        '"fail" or "warn"': value in ("fail", "warn"),
        "a text": isinstance(value, str),
        "a table for each model": isinstance(value, Mapping),
    }[_VALUES[key]]


def _check_model(document: Document, place: tuple[str, ...]) -> None:
    from primus_machine.gpus import models

    known = [model.name for model in models.load()]
    if place[-1] not in known:
        raise ConfigError(
            f"no GPU model is called '{place[-1]}'",
            where=document.where(place),
            why=f"Primus knows {', '.join(known)}",
            fix=suggestion(place[-1], known),
        )


def _over(rule: Rule, row: Mapping[str, Any], path: str) -> Rule:
    """The site is the source of what it says, unless it names one."""
    if not row:
        return rule
    own = _of_site({key: value for key, value in row.items() if key != "models"}, path)
    models = {
        name: {**rule.models.get(name, {}), **_of_site(values, path)} for name, values in row.get("models", {}).items()
    }
    # A site's threshold for all models wins over a built-in one for a single model.
    kept = {name: {k: v for k, v in values.items() if k not in own} for name, values in rule.models.items()}
    return replace(rule, **own, models={**kept, **models})


def _of_site(row: Mapping[str, Any], path: str) -> dict[str, Any]:
    """With a bound of the site's, our source and our words for what is expected are no longer true."""
    source = {"source": path} if row.keys() & set(BOUNDS) else {}
    words = {"expected": ""} if row.keys() & {"floor", "limit", "allowed"} else {}
    explicit = {"explicit": row.get("severity", "fail")} if source else {}
    return {**source, **words, **explicit, **_frozen(row)}
