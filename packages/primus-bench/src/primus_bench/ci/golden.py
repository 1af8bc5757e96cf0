"""Golden values: what the checks measured when somebody accepted them. A file beside the checks, written by `--update`.

A loss is the same on every machine, within its tolerance. Speed and memory are kept for each machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from primus_bench.report.files import write_text
from primus_core.config.document import dotted
from primus_core.errors import ConfigError
from primus_machine import strict
from primus_machine.files import plain_json, trust

__all__ = ["Measured", "Store", "path_of", "read"]

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run came to."""

    loss: Mapping[str, float | None] = field(default_factory=dict)
    """By step; None: it was not finite."""
    tokens_per_second: Sequence[float] = ()
    """Of each logged step."""
    memory_gib: float | None = None
    time: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The samples of each case of a benchmark, in seconds."""


@dataclass(frozen=True, slots=True)
class Store:
    """All golden values: `losses` by check; `machines` by machine and check."""

    losses: dict[str, dict[str, float | None]] = field(default_factory=dict)
    machines: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def of(self, check: str, machine: str) -> tuple[Measured, bool]:
        """The values of a check; and whether it was ever measured on this machine."""
        here = self.machines.get(machine, {}).get(check)
        return Measured(loss=self.losses.get(check, {}), **(here or {})), here is not None

    def keep(self, check: str, machine: str, measured: Measured) -> None:
        """Make `measured` the golden values."""
        values = asdict(measured)
        if loss := values.pop("loss"):
            self.losses[check] = loss
        self.machines.setdefault(machine, {})[check] = values

    def write(self, path: str) -> None:
        """Replace the file."""
        text = json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1, sort_keys=True, allow_nan=False)
        write_text(path, text + "\n")


def path_of(checks: str) -> str:
    """Where the golden values of a file of checks are: `primus-ci.golden.json` of `primus-ci.yaml`."""
    return f"{checks.removesuffix('.yaml').removesuffix('.yml')}.golden.json"


def read(path: str, environ: Mapping[str, str]) -> Store:
    """The golden values; none where there is no file.

    Raises:
        ConfigError: the file is damaged, or of another version.
    """
    try:
        with open(path, "rb", opener=trust.of(environ).opener) as file:
            data = plain_json.loads(file.read(_MOST_BYTES))
    except FileNotFoundError:
        return Store()
    except (OSError, ValueError) as error:
        raise ConfigError("the golden values cannot be read", where=path, why=str(error), fix=_AGAIN) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ConfigError(f"these golden values do not have schema {SCHEMA}", where=path, fix=_AGAIN)
    try:
        strict.read(_File, data)
    except strict.ValidationError as error:
        raise _explain(path, error) from None
    return Store(data["losses"], data["machines"])


_AGAIN = "restore the file, or remove it and measure again: primus ci --update"
_SHAPE = """known:
  losses    check: {step: loss}
  machines  machine: {check: {memory_gib: number, time: {case: [seconds]}, tokens_per_second: [number]}}"""
_MOST_BYTES = 256 << 20

_Number = Annotated[float, ("allow_inf_nan", False), ("lt", 1e100), ("gt", -1e100)]
_Positive = Annotated[float, ("allow_inf_nan", False), ("lt", 1e100), ("gt", 0)]
_Step = Annotated[str, ("pattern", "^[0-9]{1,18}$")]


@dataclass(frozen=True, slots=True)
class _Measured:
    memory_gib: _Number | None = None
    time: dict[str, list[_Positive]] = field(default_factory=dict)
    tokens_per_second: list[_Number] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _File:
    schema: int
    losses: dict[str, dict[_Step, _Number | None]]
    machines: dict[str, dict[str, _Measured]]


def _explain(path: str, error: strict.ValidationError) -> ConfigError:
    first = error.errors()[0]
    key = dotted(tuple(part for part in first["loc"] if part != "[key]"))
    what = f"'{key}' is missing" if first["type"] == "missing" else f"'{key}' is {first['input']!r:.60}"
    reason = "" if first["type"] == "missing" else f"{first['msg']}; "
    return ConfigError(f"{what} among the golden values", where=path, why=reason + _SHAPE, fix=_AGAIN)
