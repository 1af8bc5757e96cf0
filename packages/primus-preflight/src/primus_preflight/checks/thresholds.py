"""Thresholds are data: ours from `data/thresholds.toml`, and a site's own file over them, every key of it checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_core.errors import ConfigError, suggestion
from primus_preflight.checks.rule import Rule

if TYPE_CHECKING:
    from primus_core.config.document import Document
    from primus_preflight.checks.check import Check

__all__ = ["fix_of", "packaged", "with_site"]

_FIX = "look at it again: primus direct -- preflight --only {}; if it stays so, leave the node out: srun --exclude"
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "floor": (int, float), "limit": (int, float), "allowed": list, "severity": str, "source": str, "fix": str,
    "models": dict, "share": (int, float), "of_speed": (int, float),
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
    return (rule and rule.fix) or _FIX.format(check)


def _rule(name: str, row: Mapping[str, Any]) -> Rule:
    models = {model: _frozen(own) for model, own in row.get("models", {}).items()}
    return Rule(name, **{**_frozen(row), "models": models})


def _frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def with_site(checks: Sequence[Check], path: str, environ: Mapping[str, str]) -> tuple[Check, ...]:
    """The checks under the thresholds in a site's file.

    Raises:
        ConfigError: it cannot be read, or a key in it means nothing.
    """
    from primus_core.config import files  # yaml, which only a site's file needs

    document = files.read(path, environ)
    said = {f"{group}.{name}": row for group, rows in _tables(document).items() for name, row in rows.items()}
    known = {check.name for check in checks}
    for name, row in said.items():
        group, _, rest = name.partition(".")
        if name not in known:
            fix = suggestion(name, known) or "`preflight list` names them"
            raise ConfigError(f"no check is called '{name}'", where=document.where((group, rest)), fix=fix)
        _check_row(document, (group, rest), row)
    return tuple(replace(check, rule=_over(check.rule, said.get(check.name, {}), path)) for check in checks)


def _tables(document: Document) -> Mapping[str, Mapping[str, Any]]:
    for group, rows in document.data.items():
        if not isinstance(rows, Mapping):
            raise ConfigError(
                f"'{group}' is no table of checks", where=document.where((group,)), fix="write [host.shm]"
            )
    return document.data


def _check_row(document: Document, place: tuple[str, ...], row: Any) -> None:
    if not isinstance(row, Mapping):
        raise ConfigError(
            f"'{'.'.join(place)}' is no table", where=document.where(place), fix="write floor = 16 below it"
        )
    for key, value in row.items():
        where = document.where((*place, key))
        if key not in _KINDS or (key == "models" and "models" in place):
            raise ConfigError(f"{key!r} is no key of a threshold", where=where, why=f"keys: {', '.join(_KINDS)}",
                              fix=suggestion(key, _KINDS))  # fmt: skip
        wrong = key == "severity" and value not in ("fail", "warn")
        wrong |= isinstance(value, float) and math.isnan(value)  # which nothing reaches
        if not isinstance(value, _KINDS[key]) or isinstance(value, bool) or wrong:
            expected = {"severity": '"fail" or "warn"', "allowed": "a list of texts", "models": "a table"}
            raise ConfigError(
                f"{key} = {value!r}",
                where=where,
                fix=f"write {expected.get(key, 'a number or text as the others have')}",
            )
    for model, own in row.get("models", {}).items():
        _check_row(document, (*place, "models", model), own)


def _over(rule: Rule, row: Mapping[str, Any], path: str) -> Rule:
    """The site is the source of what it says, unless it names one."""
    if not row:
        return rule
    own = {key: value for key, value in _frozen(row).items() if key != "models"}
    models = {
        name: {**rule.models.get(name, {}), "source": path, **_frozen(said)}
        for name, said in row.get("models", {}).items()
    }
    # What is said for all models wins over what we say for one.
    kept = {name: {k: v for k, v in said.items() if k not in own} for name, said in rule.models.items()}
    bounds = {field.name for field in fields(Rule)} & own.keys()
    return replace(rule, **{"source": path, **{key: own[key] for key in bounds}}, models={**kept, **models})
