"""What became of a framework's settings in another version: the data of a backend behind `primus config migrate`."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version

from primus_core.errors import RequestError, nearest

__all__ = ["Fate", "Migration", "fate_of", "find_version", "fix_of", "read_rows"]

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one setting: it is called `to` now, or it is gone."""

    to: str = ""
    why: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Migration:
    """The way to one version of a framework."""

    framework: str
    """Its name before `==`."""
    version: str
    known: Collection[str]
    """All settings of that version, and those that Primus adds."""
    judge: Callable[[str, Any], Fate | None]
    """Return what became of a setting with that value, or None if it is not known to have changed."""
    earlier: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The settings of each version that the package has the list of, oldest first."""
    sections: tuple[str, ...] = ("model", "data")
    """Sections of Primus: what is in them stays, unless `judge` says otherwise."""

    def fate(self, name: str, value: Any) -> Fate | None:
        """Return what becomes of a setting, or None if it stays as it is."""
        if name in self.known:
            return None
        if (plain := name.replace("-", "_")) != name:
            return self.fate(plain, value) or Fate(to=plain, why="settings are written with underscores")
        found = self.judge(name, value)
        if found and found.to and not self.takes(found.to):
            after = self.fate(found.to, value)
            found = after if after and after.to else None
        if found or name.split(".", maxsplit=1)[0] in self.sections:
            return found
        near = nearest(name, self.known)
        return Fate(why=self._since(name), fix=f"the nearest name is '{near}'; it may mean something else" * bool(near))

    def takes(self, name: str) -> bool:
        """Check whether the version has a setting."""
        return name in self.known or name.split(".", maxsplit=1)[0] in self.sections

    def _since(self, name: str) -> str:
        having = [version for version, names in self.earlier.items() if name in names]
        if not having:
            return f"no known version of {self.framework} has it"
        if Version(having[0]) > Version(self.version):
            return f"{self.framework} has it since {having[0]}"
        later = [version for version in self.earlier if Version(version) > Version(having[-1])]
        return f"removed from {self.framework} in {later[0] if later else self.version}"


def find_version(framework: str, asked: str, shipped: Collection[str]) -> str:
    """Return the newest of the `shipped` versions that `asked` stands for: `0.19` for `0.19.2`.

    Raises:
        RequestError: there is none.
    """
    found = [version for version in shipped if version == asked or version.startswith(f"{asked}.")]
    if not found:
        why = f"Primus knows the settings of {framework} {', '.join(shipped)}"
        raise RequestError(
            f"unknown version {framework}=={asked}", why=why, fix=f"--to {framework}=={list(shipped)[-1]}"
        )
    return found[-1]


@functools.cache
def read_rows(path: Path) -> Mapping[str, Row]:
    """Return the rows of a table by setting.

    A row has `to`, or `gone` (why) with `instead`; where that is empty, the setting is removed, maybe with a `because`.
    `since` is the version.
    """
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {name: row for name, row in rows.items() if not name.startswith("#")}


def fate_of(row: Row, framework: str) -> Fate:
    """Return what a row says."""
    if "to" in row:
        return Fate(to=row["to"], why=f"renamed in {framework} {row['since']}" if "since" in row else "")
    since = f"removed from {framework} in {row['since']}: " if "since" in row else ""
    return Fate(
        why=f"{since}{row.get('ignored') or row.get('gone', '')}",
        fix=row.get("instead") or row.get("because", ""),
    )


def fix_of(row: Row) -> str:
    """Return what to do about a setting that is gone."""
    return row["instead"] or ": ".join(filter(None, ("remove it", row.get("because", ""))))
