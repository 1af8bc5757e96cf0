"""Settings as a backend plans with them: what was given, over the framework's defaults, and what Primus adds to them.

What Primus adds stands in one table: planning, errors and the documentation read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from primus_core.config.document import Document
from primus_core.errors import ConfigError
from primus_core.options import Option, check

__all__ = ["Own", "Settings", "as_markdown", "as_options", "own_section"]


@dataclass(frozen=True, slots=True)
class Own:
    """One setting of Primus."""

    name: str
    type: str
    default: Any
    meaning: str
    becomes: str
    """What it is in the framework's terms."""
    choices: tuple[Any, ...] = ()
    least: float | None = None


def as_options(table: Sequence[Own], prefix: str = "") -> dict[str, Option]:
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


def as_markdown(table: Sequence[Own], framework: str, prefix: str = "") -> str:
    """The table as it stands on the backend's page."""
    rows = [f"| setting | type | default | meaning | in {framework} |", "|---|---|---|---|---|"]
    for own in table:
        kind = " or ".join(f"`{choice}`" for choice in own.choices) or own.type
        default = "" if own.default is None else f"`{str(own.default).lower() if own.type == 'bool' else own.default}`"
        rows.append(f"| `{prefix}{own.name}` | {kind} | {default} | {own.meaning} | {own.becomes} |")
    return "\n".join(rows)


def own_section(document: Document, table: Sequence[Own], prefix: str, framework: str) -> dict[str, Any]:
    """A section that is Primus's alone (`data`), checked against its table; names without the prefix.

    Raises:
        ConfigError: a name or a value is wrong.
    """
    inside = document.below((prefix,)) if document.data else document
    given = check(inside, as_options(table, prefix + "."), framework=f"Primus's {framework} backend")
    _check_least(given, _least(table, prefix + "."), lambda name: inside.where(tuple(name.split("."))))
    return {name.removeprefix(prefix + "."): value for name, value in given.items()}


class Settings:
    """Settings by dotted name. What was not given has its default; `set` is for what the plan decides."""

    def __init__(
        self,
        document: Document,
        options: Mapping[str, Option],
        table: Sequence[Own],
        least: Mapping[str, float],
        framework: str,
    ) -> None:
        """Check what `document` has against the framework's `options`, Primus's `table`, and the `least` of numbers.

        Raises:
            ConfigError: a name or a value is wrong.
        """
        self.document, self.table = document, table
        self.options: dict[str, Option] = {**options, **as_options(table)}
        self.given = check(document, self.options, framework=framework)
        _check_least(self.given, {**least, **_least(table)}, self.where)

    def __getitem__(self, name: str) -> Any:
        return self.given[name] if name in self.given else self.options[name].default

    def __contains__(self, name: str) -> bool:
        """Whether it was given."""
        return name in self.given

    def where(self, name: str) -> str:
        """`file:line` of a setting that was given."""
        return self.document.where(tuple(name.split(".")))

    def default(self, name: str, value: Any) -> bool:
        """Set it unless it was given; whether it was set."""
        if name in self:
            return False
        self.given[name] = value
        return True

    def set(self, name: str, value: Any) -> None:
        self.given[name] = value

    def error(self, name: str, what: str, *, why: str = "", fix: str = "") -> ConfigError:
        """An error at the place of a setting."""
        return ConfigError(what, where=self.where(name), why=why, fix=fix)

    def own(self) -> dict[str, Any]:
        """Those of Primus, given or not."""
        return {row.name: self[row.name] for row in self.table}

    def framework(self) -> dict[str, Any]:
        """What the worker hands to the framework: all but Primus's own."""
        own = {row.name for row in self.table}
        return {name: value for name, value in sorted(self.given.items()) if name not in own}


def _least(table: Sequence[Own], prefix: str = "") -> dict[str, float]:
    return {prefix + own.name: own.least for own in table if own.least is not None}


def _check_least(values: Mapping[str, Any], least: Mapping[str, float], where: Callable[[str], str]) -> None:
    """Refuse numbers below what makes sense."""
    for name, bound in least.items():
        value = values.get(name)
        if isinstance(value, int | float) and value < bound:
            raise ConfigError(f"'{name}' is {value}, and must be at least {bound:g}", where=where(name))
