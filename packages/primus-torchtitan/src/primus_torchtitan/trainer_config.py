"""`Trainer.Config` from the settings that the plan resolved. Runs in the worker: it imports TorchTitan."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from primus_torchtitan.text import DATASET

__all__ = ["build"]

Settings = Mapping[str, Any]


def build(resolved: Settings) -> Any:
    """The configuration of TorchTitan's trainer for a resolved `backend_config.json`."""
    from torchtitan.components.checkpointer import CheckpointManager
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
    from torchtitan.trainer import Trainer

    from primus_torchtitan.model_sizes import model_spec
    from primus_torchtitan.turbo_fp8 import with_fp8

    settings = dict(resolved["settings"])
    spec = with_fp8(model_spec(resolved["model"]), resolved.get("fp8") or ())
    config = Trainer.Config(
        model_spec=spec,
        dataloader=HuggingFaceTextDataLoader.Config(),
        checkpoint=CheckpointManager.Config(**_take(settings, "checkpoint")),
        activation_checkpoint=_activation_checkpoint(_take(settings, "activation_checkpoint")),
        loss=_loss(_take(settings, "loss"), spec.model.vocab_size),
        optimizer=_optimizer(_take(settings, "optimizer")),
        metrics=_metrics(resolved),
    )
    _read_indexed(config, resolved)
    _read_mock(config, resolved)
    for name, value in settings.items():
        _set(config, name, value)
    return _checked(config)


def _read_indexed(config: Any, resolved: Settings) -> None:
    """Where the plan says which samples are read, Primus's loader reads them, and nothing is left to tokenize."""
    parts = resolved.get("samples") or {}  # a run of an earlier version has none
    if not parts:
        return
    from primus_data.training.samples import Samples
    from primus_torchtitan.indexed_loader import IndexedLoader, NoTokenizer

    vocab_size = config.model_spec.model.vocab_size
    samples = resolved["settings"]["training.steps"] * resolved["global_batch_size"]
    config.tokenizer = NoTokenizer.Config()
    config.dataloader = IndexedLoader.Config(told={**parts["train"], "samples": samples}, vocab_size=vocab_size)
    if "validation" in parts and resolved["settings"]["validator.dataloader.dataset"] == DATASET:
        config.validator.dataloader = IndexedLoader.Config(
            told=parts["validation"], vocab_size=vocab_size, infinite=False
        )
        if resolved["settings"].get("validator.enable"):  # now, not at the first evaluation
            Samples.of({**parts["validation"], "length": resolved["settings"]["training.seq_len"]})


def _read_mock(config: Any, resolved: Settings) -> None:
    """Random tokens, for a measurement: nothing is read, and nothing is left to tokenize."""
    if not resolved.get("mock"):
        return
    from primus_torchtitan.indexed_loader import NoTokenizer
    from primus_torchtitan.mock_loader import MockLoader

    vocab_size = config.model_spec.model.vocab_size
    config.tokenizer = NoTokenizer.Config()
    config.dataloader = MockLoader.Config(vocab_size=vocab_size)
    config.validator.dataloader = MockLoader.Config(vocab_size=vocab_size, seed=1, infinite=False)


def _take(settings: dict[str, Any], section: str) -> dict[str, Any]:
    """Remove a section that is built as a whole, and return it without its name."""
    names = [name for name in settings if name.startswith(section + ".")]
    return {name.removeprefix(section + "."): settings.pop(name) for name in names}


def _set(config: Any, name: str, value: Any) -> None:
    *path, last = name.split(".")
    setattr(functools.reduce(getattr, path, config), last, value)


def _activation_checkpoint(section: Settings) -> Any:
    from torchtitan.distributed.activation_checkpoint import FullAC, MemoryBudgetAC, SelectiveAC

    policies = {"full": FullAC.Config, "selective": SelectiveAC.Config, "memory_budget": MemoryBudgetAC.Config}
    fields = {name: value for name, value in section.items() if name != "mode"}
    policy = policies.get(section.get("mode", "selective"))
    return policy(**fields) if policy else None


def _loss(section: Settings, vocab_size: int) -> Any:
    from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss

    plain = CrossEntropyLoss.Config(global_vocab_size=vocab_size)
    if section["kind"] == "cross_entropy":
        return plain
    return ChunkedLossWrapper.Config(loss_fn=plain, num_chunks=section["num_chunks"])


def _optimizer(section: Settings) -> Any:
    from torchtitan.components.optimizer import OptimizersContainer, ParamGroupConfig

    groups = [ParamGroupConfig(**_tupled(group)) for group in section["param_groups"]]
    rest = {name: value for name, value in section.items() if name != "param_groups"}
    return OptimizersContainer.Config(param_groups=groups, **rest)


def _tupled(group: Settings) -> dict[str, Any]:
    """JSON has no tuples, and torch's optimizers keep what they are given (`betas`) in checkpoints."""
    kwargs = group.get("optimizer_kwargs", {})
    return {**group, "optimizer_kwargs": {k: tuple(v) if isinstance(v, list) else v for k, v in kwargs.items()}}


def _metrics(resolved: Settings) -> Any:
    from primus_torchtitan.step_metrics import PrimusMetrics

    return PrimusMetrics.Config(
        steps=resolved["settings"]["training.steps"],
        global_batch_size=resolved["global_batch_size"],
        tokens_per_step=resolved["global_batch_size"] * resolved["settings"]["training.seq_len"],
        plan={name: resolved[name] for name in ("metrics_rank", "flops_per_token", "peak_tflops", "on_non_finite")},
    )


def _checked(config: Any) -> Any:
    """TorchTitan's own checks run when a configuration is made, and this one was changed since: run them again."""
    for part in (config, config.parallelism, config.compile, config.validator):
        part.__post_init__()
    return config
