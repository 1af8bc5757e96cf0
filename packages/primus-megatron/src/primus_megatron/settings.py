"""The settings of a run, checked: those that were given, over Megatron's and Primus's defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from primus_core.config.document import Document
from primus_core.errors import ConfigError
from primus_core.options import Option, check
from primus_megatron.own_settings import SETTINGS, Own, as_options
from primus_megatron.schema import Schema

__all__ = ["LEAST", "Settings", "check_least", "own_table"]

_ONE_OR_MORE = (
    "num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "ffn_hidden_size", "kv_channels",
    "num_experts", "train_iters", "seq_length", "max_position_embeddings", "micro_batch_size", "global_batch_size",
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
    "expert_model_parallel_size", "expert_tensor_parallel_size", "save_interval", "eval_interval", "log_interval",
)  # fmt: skip
_ZERO_OR_MORE = ("lr", "min_lr", "lr_warmup_iters", "weight_decay", "clip_grad", "eval_iters", "num_workers")
LEAST: dict[str, float] = {**dict.fromkeys(_ONE_OR_MORE, 1), **dict.fromkeys(_ZERO_OR_MORE, 0)}
"""Megatron says these in assertions on every rank, hours of queueing later, or divides by zero."""
_ASKED_OTHERWISE = {
    "rank": "it is each process's own",
    "world_size": "it follows from the nodes and GPUs",
    "local_rank": "it is each process's own",
    "config_file": "settings stand in the experiment",
    "yaml_cfg": "settings stand in the experiment",
}
_ITEM: dict[str, Callable[[Any], Any]] = {"int": int, "float": float}


class Settings:
    """Settings by name. What was not given has its default; `set` is for what the plan decides."""

    def __init__(self, document: Document, schema: Schema) -> None:
        self.document = document
        self.options: dict[str, Option] = {**schema.options, **as_options(SETTINGS)}
        for name, why in _ASKED_OTHERWISE.items():
            if name in document.data:
                raise self.error(name, f"'{name}' is not for an experiment to set", why=why, fix="remove it")
        self.given = check(self._lists(schema), self.options, framework="Megatron")
        check_least(self.given, LEAST | {own.name: own.least for own in SETTINGS if own.least is not None}, self.where)

    def _lists(self, schema: Schema) -> Document:
        """Lists may be written as on Megatron's command line: `train_data_path: 3 web 1 books`."""
        data = dict(self.document.data)
        for name, value in data.items():
            option = schema.options.get(name)
            if option and option.type == "list" and value is not None:
                words = value.split() if isinstance(value, str) else value if isinstance(value, list) else [value]
                data[name] = self._numbers(name, words, schema.items.get(name, ""))
        return Document(data, self.document.marks)

    def _numbers(self, name: str, words: list[Any], kind: str) -> list[Any]:
        try:
            return [_ITEM.get(kind, str)(word) for word in words]
        except (TypeError, ValueError):
            raise self.error(name, f"'{name}' takes a list of {kind}: {words!r}") from None

    def __getitem__(self, name: str) -> Any:
        return self.given[name] if name in self.given else self.options[name].default

    def __contains__(self, name: str) -> bool:
        """Whether it was given. Nothing (`null`) is what every setting that takes it has by default."""
        return self.given.get(name) is not None

    def knows(self, name: str) -> bool:
        """Whether this version of Megatron has it."""
        return name in self.options

    def where(self, name: str) -> str:
        """`file:line` of a setting that was given."""
        return self.document.where((name,))

    def default(self, name: str, value: Any) -> bool:
        """Set it unless it was given, or this version does not know it; whether it was set."""
        if name in self or name not in self.options:
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
        return {row.name: self[row.name] for row in SETTINGS}

    def framework(self) -> dict[str, Any]:
        """What the worker hands to Megatron: all but Primus's own."""
        own = {row.name for row in SETTINGS}
        return {name: value for name, value in sorted(self.given.items()) if name not in own}


def check_least(values: Mapping[str, Any], least: Mapping[str, float], where: Callable[[str], str]) -> None:
    """Refuse numbers below what makes sense."""
    for name, bound in least.items():
        value = values.get(name)
        if isinstance(value, int | float) and value < bound:
            raise ConfigError(f"'{name}' is {value}, and must be at least {bound:g}", where=where(name))


def own_table(document: Document, table: tuple[Own, ...], prefix: str) -> dict[str, Any]:
    """A section that is Primus's alone (`data`), checked against its table; names without the prefix."""
    inside = document.below((prefix,)) if document.data else document
    given = check(inside, as_options(table, prefix + "."), framework="Primus's Megatron backend")
    least = {f"{prefix}.{own.name}": own.least for own in table if own.least is not None}
    check_least(given, least, lambda name: inside.where(tuple(name.split("."))))
    return {name.removeprefix(prefix + "."): value for name, value in given.items()}
