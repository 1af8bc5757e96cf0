"""Writes TorchTitan's argument list and model families as data, so that planning needs no TorchTitan.

python -m primus_torchtitan.generate_schema [FILE]     (standard output without FILE)
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import sys
import textwrap
import types
import typing
from pathlib import Path
from typing import Any

__all__ = ["generate", "sizes"]

Row = dict[str, Any]
_SIMPLE = {int: "int", float: "float", bool: "bool", str: "str", list: "list", dict: "dict", tuple: "list"}
# Flux has a trainer and an image pipeline of its own; Qwen 3.5 needs a package that TorchTitan does not bring.
# (A family that is not listed can still be named by its module: `family: torchtitan.models.qwen3_5`.)
_NOT_LISTED = {"common", "flux", "qwen3_5"}


def generate() -> dict[str, Any]:
    """The schema of the installed TorchTitan, as JSON values."""
    from importlib.metadata import version

    from primus_torchtitan.patches import apply_all

    apply_all()  # TorchTitan does not import on a machine without an accelerator as it is
    return {
        "version": version("torchtitan"),
        "options": dict(sorted(_trainer_options().items())),
        "families": _families(),
        "schedules": _schedules(),
        "datasets": _datasets(),
    }


def _trainer_options() -> dict[str, Row]:
    from torchtitan.trainer import Trainer

    concrete = _concrete_classes()
    return _options(Trainer.Config(), "", concrete) | _activation_checkpoint() | _loss()


def _concrete_classes() -> dict[str, type]:
    """Which class stands for a field whose declared type is only a base class."""
    from torchtitan.components.checkpointer import CheckpointManager
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader

    text = HuggingFaceTextDataLoader.Config
    return {"dataloader": text, "validator.dataloader": text, "checkpoint": CheckpointManager.Config}


def _activation_checkpoint() -> dict[str, Row]:
    """The fields of the three classes that `activation_checkpoint` may be; `mode`, which chooses, is Primus's own."""
    from torchtitan.distributed.activation_checkpoint import FullAC, MemoryBudgetAC, SelectiveAC

    rows: dict[str, Row] = {}
    for policy in (FullAC, SelectiveAC, MemoryBudgetAC):
        rows |= _options(policy.Config(), "activation_checkpoint.", {})
    return rows


def _loss() -> dict[str, Row]:
    from torchtitan.components.loss import ChunkedLossWrapper

    rows = _options(ChunkedLossWrapper.Config(), "loss.", {})
    return {"loss.num_chunks": rows["loss.num_chunks"]}


def _options(config: Any, prefix: str, concrete: dict[str, type]) -> dict[str, Row]:
    """One row per field of the dataclass instance `config`, whose values are the defaults."""
    hints = typing.get_type_hints(type(config), include_extras=True)
    helps = _help_texts(type(config))
    rows: dict[str, Row] = {}
    for field in dataclasses.fields(config):
        name, hint, value = prefix + field.name, hints[field.name], getattr(config, field.name)
        if nested := concrete.get(name, _section(hint)):
            rows |= _options(value if isinstance(value, nested) else nested(), name + ".", concrete)
        elif not _suppressed(hint) and (row := _row(hint, value, helps.get(field.name, ""))):
            rows[name] = row
    return rows


def _section(hint: Any) -> Any:
    return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None


def _suppressed(hint: Any) -> bool:
    """Fields that TorchTitan itself keeps off its command line hold code, not data."""
    return any("Suppress" in repr(mark) for mark in getattr(hint, "__metadata__", ()))


def _row(hint: Any, default: Any, text: str) -> Row | None:
    parts = [part for part in _alternatives(hint) if part is not type(None)]
    if any(dataclasses.is_dataclass(part) for part in parts):
        return None  # `activation_checkpoint`: one of several classes, listed by itself
    choices = [value for part in parts if typing.get_origin(part) is typing.Literal for value in typing.get_args(part)]
    kinds = {_SIMPLE.get(typing.get_origin(part) or part, "any") for part in parts}
    kind = "str" if choices else "float" if kinds == {"int", "float"} else kinds.pop()
    row: Row = {"type": kind, "default": default}
    row |= {"choices": choices} if choices else {}
    row |= {"optional": True} if type(None) in _alternatives(hint) else {}
    return row | ({"help": text} if text else {})


def _alternatives(hint: Any) -> tuple[Any, ...]:
    hint = _bare(hint)
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return tuple(_bare(part) for part in typing.get_args(hint)) if union else (hint,)


def _bare(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint


def _help_texts(config: type) -> dict[str, str]:
    """Docstrings that stand below fields, inherited ones too."""
    texts: dict[str, str] = {}
    for base in reversed(config.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for above, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name) and _is_text(below):
                texts[above.target.id] = inspect.cleandoc(ast.literal_eval(below.value))  # type: ignore[attr-defined]
    return texts


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _families() -> dict[str, dict[str, Row]]:
    from torchtitan import models

    names = sorted(path.name for path in Path(models.__path__[0]).iterdir() if (path / "config_registry.py").is_file())
    return {name: _flavors(name) for name in names if name not in _NOT_LISTED}


def _flavors(family: str) -> dict[str, Row]:
    module = importlib.import_module(f"torchtitan.models.{family}")
    tables = [value for name, value in vars(module).items() if name.endswith("_configs") and isinstance(value, dict)]
    return {flavor: sizes(module.model_registry(flavor).model) for flavor in tables[0]}


def sizes(model: Any) -> Row:
    """Return what the checks before a launch need to know of a model. None: this model has no such number."""
    attention = model.first_attention
    heads = getattr(attention, "n_heads", None)
    rope = getattr(attention, "rope", None)
    return {
        "dim": model.dim,
        "n_layers": len(model.layers),
        "n_heads": heads,
        "n_kv_heads": getattr(attention, "n_kv_heads", None) or heads,
        "vocab_size": model.vocab_size,
        "ffn_hidden_dim": _hidden(model.layers[0]),
        "rope_theta": getattr(rope, "theta", None),
        "rope_scaling": getattr(rope, "scaling", None),
        "max_seq_len": model.max_seq_len,
        "weight_tying": model.enable_weight_tying,
        "experts": max(getattr(getattr(layer, "moe", None), "num_experts", 0) for layer in model.layers),
    }


def _hidden(layer: Any) -> int | None:
    feed_forward = getattr(layer, "feed_forward", None)
    return None if feed_forward is None else int(feed_forward.w1.out_features)


def _schedules() -> dict[str, str]:
    """Pipeline schedules and whether a rank holds one stage or several."""
    from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle, get_schedule_class

    names = ("1F1B", "GPipe", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
    kinds = {PipelineScheduleSingle: "single", PipelineScheduleMulti: "multi"}
    return {n: next(kind for base, kind in kinds.items() if issubclass(get_schedule_class(n), base)) for n in names}


def _datasets() -> list[str]:
    from torchtitan.hf_datasets.text_datasets import DATASETS

    return sorted(DATASETS)


def main(argv: list[str]) -> None:
    """Write the schema to the file in `argv`, or print it."""
    text = json.dumps(generate(), indent=1) + "\n"
    if argv:
        Path(argv[0]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
