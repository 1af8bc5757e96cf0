"""The file of checks: what to run, and how far each figure may be from its golden value."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from primus_core.config import files
from primus_core.config.document import Document, Path, dotted
from primus_core.errors import ConfigError, Mistakes, suggestion
from primus_machine import strict
from primus_machine.files import trust

__all__ = ["FIGURES", "Check", "read"]

FIGURES: Mapping[str, str] = {
    "loss": "the loss of every logged step",
    "tokens_per_second": "the speed of training",
    "memory_gib": "the peak of the device's memory",
    "time": "the time of every case of a benchmark",
}
"""What a check can compare."""


_REPORTS = "primus-ci"
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class _Entry:
    run: str | list[str]
    compare: dict[str, Any]
    timeout: float | int = 3600


@dataclass(frozen=True, slots=True)
class Check:
    """One run, and what it must come to."""

    name: str
    words: tuple[str, ...]
    """Of the command line, behind `primus`."""
    tolerances: Mapping[str, float]
    """By figure: 0.05 is 5 %."""
    timeout_s: float

    @property
    def kind(self) -> Literal["train", "bench"]:
        return "bench" if "time" in self.tolerances else "train"


def read(path: str, environ: Mapping[str, str]) -> tuple[Check, ...]:
    """The checks in the YAML file `path`, in its order.

    Raises:
        ConfigError: the file cannot be read, or anything in it is wrong; all of it.
    """
    opener = trust.of(environ).opener  # the file says what to run
    document, mistakes, found = files.read(path, environ, opener=opener), Mistakes(), []
    for key in set(document.data) - {"checks"}:
        mistakes.add(_unknown(document, (key,), ["checks"]))
    checks = document.data.get("checks")
    if not isinstance(checks, Mapping) or not checks:
        mistakes.add(ConfigError("there are no checks", where=document.where(("checks",)) or path, fix=_EXAMPLE))
        checks = {}
    for name in checks:
        with mistakes:
            found.append(_check(str(name), document.section(("checks", name)), mistakes))
    mistakes.refuse()
    return tuple(found)


_EXAMPLE = "add one: docs/ci.md has an example"


def _check(name: str, document: Document, mistakes: Mistakes) -> Check:
    _require_name(name, document)
    try:
        entry = strict.read(_Entry, document.data)
    except strict.ValidationError as error:
        raise _explain(name, error, document) from None
    words = _words(name, entry.run, document)
    if words[:1] == ["primus"]:
        words = words[1:]
    if "--" not in words:
        fix = "write it as on the command line: direct -- train pretrain --config exp.yaml"
        raise ConfigError(f"{name}: 'run' names no runtime and task", where=document.where(("run",)), fix=fix)
    if not entry.timeout > 0:
        why = "it is the number of seconds after which the run is stopped"
        raise ConfigError(f"{name}: 'timeout' is {entry.timeout}", where=document.where(("timeout",)), why=why)
    return Check(name, tuple(words), _tolerances(name, document, mistakes), float(entry.timeout))


def _require_name(name: str, document: Document) -> None:
    """Refuse a name that cannot be that of its log, beside the reports."""
    is_plain = name.isprintable() and "/" not in name and not name.startswith(".")
    if not is_plain or not 0 < len(name.encode()) <= _LONGEST_NAME or name == _REPORTS:
        why = f"its log is called so: printable, without /, at most {_LONGEST_NAME} bytes, not .NAME, not {_REPORTS}"
        raise ConfigError(f"a check is called {name[:_LONGEST_NAME]!r}", where=document.where(()), why=why)


def _words(name: str, run: str | list[str], document: Document) -> list[str]:
    try:
        return shlex.split(run) if isinstance(run, str) else run
    except ValueError as error:
        fix = "close the quotation, or write a list of words"
        what = f"{name}: 'run' is not a command line"
        raise ConfigError(what, where=document.where(("run",)), why=str(error).lower(), fix=fix) from None


def _tolerances(name: str, document: Document, mistakes: Mistakes) -> dict[str, float]:
    found: dict[str, float] = {}
    compared = document.data["compare"]
    for figure, value in compared.items():
        if figure not in FIGURES:
            mistakes.add(_unknown(document, ("compare", figure), sorted(FIGURES)))
            continue
        with mistakes:
            found[figure] = _tolerance(value, f"{name}: compare.{figure}", document.where(("compare", figure)))
    if not compared or ("time" in compared and len(compared) > 1):
        why = "a training has loss, tokens_per_second and memory_gib; a benchmark has time alone"
        mistakes.add(ConfigError(f"{name}: 'compare' fits no run", where=document.where(("compare",)), why=why))
    return found


def _tolerance(value: Any, key: str, where: str) -> float:
    if isinstance(value, Mapping) and set(value) == {"tolerance"}:
        value = value["tolerance"]
    text = str(value).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if isinstance(value, bool) or not 0 <= share < 1:
        raise ConfigError(f"{key} is {value!r}", where=where, why="it is a share of the golden value", fix="write 5%")
    return share


def _explain(name: str, error: strict.ValidationError, document: Document) -> ConfigError:
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    path: Path = tuple(first["loc"])
    if first["type"] == "extra_forbidden":
        return _unknown(document, path, strict.keys(_Entry), f"{name}: ")
    if first["type"] == "missing":
        return ConfigError(f"{name}: '{dotted(path)}' is missing", where=document.where(path), fix=_EXAMPLE)
    key = str(path[0])
    return ConfigError(f"{name}: '{key}' is {document.data[key]!r}", where=document.where((key,)), why=first["msg"])


def _unknown(document: Document, path: Path, known: list[str], before: str = "") -> ConfigError:
    near = suggestion(str(path[-1]), known) or "remove it"
    what = f"{before}unknown key '{dotted(path)}'"
    return ConfigError(what, where=document.where(path), why=f"known: {', '.join(known)}", fix=near)
