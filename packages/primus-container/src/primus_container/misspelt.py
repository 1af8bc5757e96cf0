"""Options that are nearly one of podman or docker. Other versions of them may have more: they are passed on."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Sequence

from primus_machine.errors import nearest

__all__ = ["Misspelt"]

_FILE = os.path.join(os.path.dirname(__file__), "engine_options.toml")
_OF_ALL = ("--dry-run", "--preflight", "--assume-host")
"""Options that every runtime around another has."""
_REFUSED = {"--detach", "--help"}


class Misspelt:
    """Which option was meant, by one among the engine's `flags` that is not known; `own` are those of Primus."""

    def __init__(self, engine: str, flags: Sequence[str], own: Iterable[str]) -> None:
        with open(_FILE, "rb") as file:
            rows = {name: [f"--{option}" for option in row] for name, row in tomllib.load(file).items()}
        known = {option for row in rows.values() for option in row}
        proposed = {*own, *_OF_ALL, *rows["both"], *rows.get(engine, ())} - _REFUSED
        typed = dict.fromkeys(word.partition("=")[0] for word in flags if word.startswith("--") and engine in rows)
        self.engine = engine
        self.meant = {flag: _meant(flag, proposed) for flag in typed if flag not in known}

    def notes(self) -> list[str]:
        """Return a note on each."""
        what = f"is not a known option of {self.engine}"
        return [f"'{flag}' {what}: did you mean '{near}'? It is passed on as it is"
                for flag, near in self.meant.items() if near]  # fmt: skip

    def advice(self, further: str) -> str:
        """Return what to do where the engine refuses the command, before what else there is."""
        lines = [f"'{flag}': did you mean '{near}'?" for flag, near in self.meant.items() if near]
        return "\n".join(filter(None, [*lines, further]))


def _meant(flag: str, known: Iterable[str]) -> str:
    """Return the option that `flag` misspells or abbreviates; empty: there is none, or several."""
    longer = [option for option in known if option.startswith(f"{flag}-")]
    return nearest(flag, known) or (longer[0] if len(longer) == 1 else "")
