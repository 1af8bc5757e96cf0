"""What the device and the installed kernels decide: settings that Primus sets, and those that cannot be honoured."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from primus_core.backend import BackendCall
from primus_core.metadata import packages
from primus_core.plan import Variable
from primus_megatron.settings import Settings

__all__ = ["cpu_variables", "device_defaults", "is_hidden"]

_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_GPU_KERNELS = (
    "masked_softmax_fusion", "bias_swiglu_fusion", "bias_gelu_fusion", "bias_dropout_fusion", "apply_rope_fusion",
    "gradient_accumulation_fusion", "cross_entropy_loss_fusion", "moe_permute_fusion", "moe_grouped_gemm",
    "use_torch_fsdp2", "use_megatron_fsdp",
)  # fmt: skip
"""Off on a CPU, and refused there."""
_TRANSFORMER_ENGINE = {
    "fp8": "Megatron's local layers have no 8-bit kernels",
    "tp_comm_overlap": "Megatron's local layers do not overlap communication",
}


def is_hidden(environ: Mapping[str, str]) -> bool:
    """Whether the user hid every GPU, as one does to train on the CPU."""
    return any(environ.get(name, "0").strip() in ("", "-1") for name in _HIDING)


def device_defaults(settings: Settings, device: str) -> list[str]:
    """Set what the environment decides where nothing was said; what to tell about it.

    Raises:
        ConfigError: a setting that this environment cannot honour.
    """
    notes: list[str] = []
    settings.default("logging_level", logging.WARNING)  # at INFO, Megatron lists every parameter of the model
    if device == "cpu":
        _cpu(settings)
    if device == "cpu" or not _has_transformer_engine():
        where = "on a CPU" if device == "cpu" else "Transformer Engine is not installed"
        if settings.default("transformer_impl", "local"):
            notes.append(f"transformer_impl is local: {where}")
        settings.default("no_persist_layer_norm", True)
    if settings["transformer_impl"] == "local":
        _check_local(settings)
    return notes


def _has_transformer_engine() -> bool:
    return any(name.startswith("transformer-engine") for name in packages())


def _cpu(settings: Settings) -> None:
    settings.default("distributed_backend", "gloo")
    settings.default("num_workers", 0)  # a process for loading would take a core from training
    for name in _GPU_KERNELS:
        if settings.given.get(name):
            raise settings.error(name, f"'{name}' needs a GPU", fix="set it to false on a CPU")
        settings.default(name, False)


def _check_local(settings: Settings) -> None:
    if settings["context_parallel_size"] > 1:
        raise settings.error(
            "context_parallel_size",
            f"context parallelism {settings['context_parallel_size']} needs Transformer Engine",
            why="the attention of Megatron's local layers does not support it",
            fix="install transformer-engine, or set context_parallel_size: 1",
        )
    for name, why in _TRANSFORMER_ENGINE.items():
        if settings[name]:
            raise settings.error(
                name,
                f"'{name}' needs Transformer Engine",
                why=why,
                fix=f"install transformer-engine, or remove '{name}'",
            )


def cpu_variables(call: BackendCall) -> list[Variable]:
    """The environment of ranks that share a node's CPUs."""
    threads = max(1, call.facts.cpu_count // call.distributed.gpus_per_node)
    shared = f"{call.facts.cpu_count} CPUs shared by the node's ranks"
    return [
        Variable("OMP_NUM_THREADS", str(threads), "megatron", shared),
        Variable("OMP_WAIT_POLICY", "PASSIVE", "megatron", "threads that spin while they wait slow one another down"),
        Variable("TORCHDYNAMO_DISABLE", "1", "megatron", "without a GPU, small functions would be compiled with g++"),
    ]
