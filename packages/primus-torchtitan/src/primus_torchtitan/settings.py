"""The settings of a run, checked: those that were given, over TorchTitan's and Primus's defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from primus_core.config.document import Document
from primus_core.errors import ConfigError
from primus_core.options import Option, check
from primus_torchtitan.own_settings import SETTINGS, Own, as_options
from primus_torchtitan.schema import Schema

__all__ = ["LEAST", "Settings", "check_least", "own_table"]

LEAST: dict[str, float] = {
    "training.steps": 1,
    "training.seq_len": 1,
    "training.local_batch_size": 1,
    "training.gc_freq": 1,
    "lr_scheduler.warmup_steps": 0,
    "metrics.log_freq": 1,
    "checkpoint.interval": 1,
    "checkpoint.keep_latest_k": 0,
    "parallelism.data_parallel_replicate_degree": 1,
    "parallelism.tensor_parallel_degree": 1,
    "parallelism.context_parallel_degree": 1,
    "parallelism.pipeline_parallel_degree": 1,
    "parallelism.expert_parallel_degree": 1,
    "parallelism.pipeline_parallel_microbatch_size": 1,
    "loss.num_chunks": 1,
    "validator.freq": 1,
    "dataloader.num_workers": 0,
}
"""TorchTitan says these in assertions, hours of queueing later."""


class Settings:
    """Settings by dotted name. What was not given has its default; `set` is for what the plan decides."""

    def __init__(self, document: Document, schema: Schema) -> None:
        self.document = document
        self.options: dict[str, Option] = {**schema.options, **as_options(SETTINGS)}
        self.given = check(document, self.options, framework="TorchTitan")
        check_least(self.given, LEAST | {own.name: own.least for own in SETTINGS if own.least is not None}, self.where)

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
        if name in self.given:
            return False
        self.given[name] = value
        return True

    def set(self, name: str, value: Any) -> None:
        self.given[name] = value

    def error(self, name: str, what: str, *, why: str = "", fix: str = "") -> ConfigError:
        """An error at the place of a setting."""
        return ConfigError(what, where=self.where(name), why=why, fix=fix)

    def framework(self) -> dict[str, Any]:
        """What the worker hands to TorchTitan: all but Primus's own."""
        own = {row.name for row in SETTINGS} - {"activation_checkpoint.mode", "loss.kind"}
        return {name: value for name, value in sorted(self.given.items()) if name not in own}


def check_least(values: Mapping[str, Any], least: Mapping[str, float], where: Callable[[str], str]) -> None:
    """Refuse numbers below what makes sense."""
    for name, bound in least.items():
        value = values.get(name)
        if isinstance(value, int | float) and value < bound:
            raise ConfigError(f"'{name}' is {value}, and must be at least {bound:g}", where=where(name))


def own_table(document: Document, table: tuple[Own, ...], prefix: str) -> dict[str, Any]:
    """A section that is Primus's alone (`model`, `data`), checked against its table; names without the prefix."""
    inside = document.below((prefix,)) if document.data else document
    given = check(inside, as_options(table, prefix + "."), framework="Primus's TorchTitan backend")
    least = {f"{prefix}.{own.name}": own.least for own in table if own.least is not None}
    check_least(given, least, lambda name: inside.where(tuple(name.split("."))))
    return {name.removeprefix(prefix + "."): value for name, value in given.items()}
