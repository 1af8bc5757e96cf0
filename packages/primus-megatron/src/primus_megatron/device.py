"""What the device and the installed kernels decide: settings that Primus sets, and those that cannot be honoured."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from primus_core.errors import MachineError
from primus_core.plan.plan import Requirement, Variable
from primus_megatron.installation import Installation
from primus_megatron.settings import Settings
from primus_train.backend import BackendCall

__all__ = ["GPU_KERNELS", "Adaptation", "adapt", "cpu_variables"]

GPU_KERNELS = (
    "masked_softmax_fusion", "bias_swiglu_fusion", "bias_gelu_fusion", "bias_dropout_fusion", "apply_rope_fusion",
    "gradient_accumulation_fusion", "cross_entropy_loss_fusion", "moe_permute_fusion", "moe_grouped_gemm",
    "use_torch_fsdp2", "use_megatron_fsdp", "use_precision_aware_optimizer",
)  # fmt: skip
"""Off on a CPU, and refused there."""
_APEX_ANYWAY = {"gradient_accumulation_fusion": "fused_weight_gradient_mlp_cuda"}
"""The kernel that the output layer, which is always Megatron's own, takes from NVIDIA's or AMD's APEX."""
_APEX = {**_APEX_ANYWAY, "masked_softmax_fusion": "scaled_upper_triang_masked_softmax_cuda"}
"""Those that the local layers take from it."""
_TE = "transformer_engine"
_TE_KERNELS = ("apply_rope_fusion", "moe_permute_fusion", "moe_router_fusion")
"""Kernels of Transformer Engine that any layers use: Megatron ends without it, and the first is on by default."""
_TE_ONLY = {
    "context_parallel_size": "the attention of Megatron's local layers does not support it",
    "fp8": "Megatron's local layers have no 8-bit kernels",
    "fp4": "Megatron's local layers have no 4-bit kernels",
    "tp_comm_overlap": "Megatron's local layers do not overlap communication",
    "cross_entropy_fusion_impl": "'te' is its cross entropy",
    "experimental_attention_variant": "Megatron builds such layers of it alone",
    "delay_wgrad_compute": "Megatron's local layers compute both gradients at once",
    "fine_grained_activation_offloading": "Megatron's local layers offload nothing",
    "log_max_attention_logit": "the attention of Megatron's local layers does not tell its logits",
    "qk_clip": "the attention of Megatron's local layers does not tell its logits",
    "symmetric_ar_type": "it has the kernels for it",
}


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What the environment made of the settings."""

    notes: list[str] = field(default_factory=list)
    requires: list[Requirement] = field(default_factory=list)


def adapt(settings: Settings, device: str, megatron: Installation) -> Adaptation:
    """Set what the environment decides where nothing was said.

    Raises:
        ConfigError: a setting that no such device can honour.
        MachineError: a setting that this version of Megatron refuses.
    """
    found = Adaptation()
    settings.default("logging_level", logging.WARNING)  # at INFO, Megatron lists every parameter of the model
    if device == "cpu":
        _cpu(settings, found)
    else:
        _gpu(settings, megatron, found)
        _check_loss(settings, megatron, found)
    return found


def _cpu(settings: Settings, found: Adaptation) -> None:
    settings.default("distributed_backend", "gloo")
    settings.default("num_workers", 0)  # a process for loading would take a core from training
    if wanted := [name for name in GPU_KERNELS if settings.given.get(name)]:
        shown = f"'{wanted[0]}' needs" if len(wanted) == 1 else f"{', '.join(map(repr, wanted))} need"
        fix = f"on a CPU, set {' '.join(f'{name}=false' for name in wanted)}"
        raise settings.error(wanted[0], f"{shown} a GPU", fix=fix)
    if settings["transformer_impl"] != "local" and "transformer_impl" in settings:
        fix = "on a CPU, set transformer_impl=local"
        raise settings.error("transformer_impl", "'transformer_impl' needs a GPU", fix=fix)
    for name in GPU_KERNELS:
        settings.default(name, False)
    _local_layers(settings, "on a CPU", found)
    _check_local(settings)


def _gpu(settings: Settings, megatron: Installation, found: Adaptation) -> None:
    if settings["use_torch_fsdp2"]:
        settings.default("gradient_accumulation_fusion", False)  # Megatron refuses it there, and has it on by default
    if settings["use_precision_aware_optimizer"] and not settings["optimizer_cpu_offload"]:
        fix = "install Transformer Engine, or use_precision_aware_optimizer=false"
        found.requires.append(Requirement("module", _TE, fix))
    if not megatron.known:
        found.notes.append("it is not known what is installed there: kernels are checked on the nodes")
    wanted = _of_transformer_engine(settings)
    if settings["transformer_impl"] == "local":
        _check_local(settings)
    elif wanted or "transformer_impl" in settings or megatron.has(_TE):
        if wanted or not megatron.has(_TE):
            names = ", ".join(wanted) or "transformer_impl"
            found.requires.append(Requirement("module", _TE, f"install Transformer Engine, or disable {names}"))
        if settings["num_experts"] and settings.default("moe_grouped_gemm", True):
            found.notes.append(
                "moe_grouped_gemm is enabled: Transformer Engine multiplies all experts of a rank at once"
            )
    else:
        _local_layers(settings, "Transformer Engine is not installed", found)
    for name, module in _kernels(settings).items():
        package = "Transformer Engine" if module == _TE else "APEX with its extensions"
        if settings.given.get(name):
            found.requires.append(Requirement("module", module, f"install {package}, or {name}: false"))
        elif settings.knows(name) and settings[name] and not megatron.has(module) and settings.default(name, False):
            lacks = package if module == _TE else f"APEX's {module}"
            found.notes.append(f"{name} is disabled: {lacks} is not installed")


def _kernels(settings: Settings) -> dict[str, str]:
    """The module that each fused kernel comes from."""
    has_rope = settings["position_embedding_type"] == "rope" or settings["use_rotary_position_embeddings"]
    # The rope of latent attention is a Triton kernel.
    of_te = _TE_KERNELS if has_rope and not settings["multi_latent_attention"] else _TE_KERNELS[1:]
    apex = _APEX if settings["transformer_impl"] == "local" else _APEX_ANYWAY
    return {**dict.fromkeys(of_te, _TE), **apex}


def _local_layers(settings: Settings, why: str, found: Adaptation) -> None:
    if settings.default("transformer_impl", "local"):
        found.notes.append(f"transformer_impl is local: {why}")
    settings.default("no_persist_layer_norm", True)


def _of_transformer_engine(settings: Settings) -> list[str]:
    """The settings that need it."""
    wanted = {
        "context_parallel_size": settings["context_parallel_size"] > 1,
        "cross_entropy_fusion_impl": _loss_of_transformer_engine(settings),
    }
    return [name for name in _TE_ONLY if wanted.get(name, settings.knows(name) and settings[name])]


def _loss_of_transformer_engine(settings: Settings) -> bool:
    return bool(settings["cross_entropy_loss_fusion"] and settings["cross_entropy_fusion_impl"] == "te")


def _check_local(settings: Settings) -> None:
    for name in _of_transformer_engine(settings):
        raise settings.error(
            name,
            f"'{name}' needs Transformer Engine",
            why=_TE_ONLY[name],
            fix=f"install transformer-engine, or remove '{name}'",
        )


def _check_loss(settings: Settings, megatron: Installation, found: Adaptation) -> None:
    """Megatron refuses this one since 0.18, on every rank."""
    if not _loss_of_transformer_engine(settings) or megatron.version.startswith("0.17."):
        return
    name = "cross_entropy_fusion_impl"
    what = f"{settings.where(name)}: '{name}: te' is rejected by Megatron since 0.18, because it is not stable"
    if megatron.known and megatron.version:
        raise MachineError(what, why=f"this is {megatron.version}", fix=f"set {name}: native, or use Megatron 0.17")
    found.notes.append(f"{what}: where that is installed, set {name}: native")


def cpu_variables(call: BackendCall) -> list[Variable]:
    """The environment of ranks that share a node's CPUs."""
    threads = max(1, call.facts.cpu_count // call.distributed.gpus_per_node)
    shared = f"{call.facts.cpu_count} CPUs shared by the node's ranks"
    return [
        Variable("OMP_NUM_THREADS", str(threads), "megatron", shared),
        Variable("OMP_WAIT_POLICY", "PASSIVE", "megatron", "threads that spin while they wait slow one another down"),
        Variable("TORCHDYNAMO_DISABLE", "1", "megatron", "without a GPU, small functions would be compiled with g++"),
    ]
