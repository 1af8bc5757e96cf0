"""What the device decides: settings that Primus sets, those that cannot be honoured, and the variables JAX reads."""

from __future__ import annotations

import os

from primus_core.environment import resolve
from primus_core.errors import RequestError
from primus_core.plan.plan import Requirement, Variable
from primus_maxtext.settings import Settings
from primus_train.backend import WANDB, BackendCall

__all__ = ["adapt", "dtype", "refuse_variables", "requires", "variables"]

_INSTALL = "pip install primus-maxtext, in the environment that runs the training (Python 3.12 or later)"
_ORIGIN = "maxtext"
_CPU_ATTENTION = ("autoselected", "dot_product")
_EIGHT_BITS = ("fp8", "nanoo_fp8", "fp8_full", "fp8_gpu")


def refuse_variables(call: BackendCall, settings: Settings) -> None:
    """MaxText takes settings from variables, past every check and every record of the run.

    Raises:
        RequestError: there is one.
    """
    for name in sorted(call.facts.environ):
        setting = name.removeprefix("M_").lower()
        if name.startswith("M_") and setting in settings.options:
            raise RequestError(
                f"{name} is set",
                why=f"MaxText would take '{setting}' from it, overriding the experiment",
                fix=f"unset {name}, and set '{setting}' in the experiment or after it",  # the value may be a secret
            )


def adapt(settings: Settings, call: BackendCall, device: str) -> tuple[str, ...]:
    """Set what the device decides where nothing was said, and tell of it.

    Raises:
        ConfigError: a setting that no such device can honour.
    """
    settings.default("log_config", False)  # it is in config/backend_config.json
    settings.default("enable_tensorboard", False)
    settings.default("jax_cache_dir", os.path.join(resolve.cache(call.facts.environ), "jax"))
    if settings["enable_checkpointing"]:
        settings.default("enable_autocheckpoint", True)  # a job that is told to end saves first
        settings.default("save_checkpoint_on_start", False)  # there is nothing in it yet
    if settings["enable_wandb"]:
        settings.default("wandb_run_name", call.place.run_id)
    return _cpu(settings) if device == "cpu" else ()


def _cpu(settings: Settings) -> tuple[str, ...]:
    if settings["attention"] not in _CPU_ATTENTION:
        what = f"'attention: {settings['attention']}' needs a GPU"
        raise settings.error("attention", what, fix="attention=dot_product")
    settings.set("attention", "dot_product")
    if settings["ici_context_parallelism"] != 1 or settings["dcn_context_parallelism"] != 1:
        settings.default("context_parallel_load_balance", False)  # Transformer Engine does it, which needs a GPU
    for name in ("grain_worker_count", "grain_worker_count_eval"):
        settings.default(name, 0)  # a process for loading would take a core from training
    if settings["num_experts"] > 1:
        off = [name for name in ("megablox", "sparse_matmul") if settings.default(name, False)]
        return (f"{' and '.join(off)} disabled: these kernels need a GPU or TPU",) if off else ()
    return ()


def dtype(settings: Settings) -> str:
    """In which most is multiplied."""
    if settings["quantization"] in _EIGHT_BITS or "fp8" in (settings["quantization"] or ""):
        return "fp8"
    return {"bfloat16": "bf16", "float16": "fp16"}.get(settings["dtype"], "fp32")


def variables(call: BackendCall, device: str) -> tuple[Variable, ...]:
    """The environment of the node's process."""
    if device != "cpu":
        return ()
    count = call.distributed.gpus_per_node
    found = [Variable("JAX_PLATFORMS", "cpu", _ORIGIN, "there is no GPU, so JAX does not search for one")]
    if count > 1:
        flag = f"--xla_force_host_platform_device_count={count}"
        found.append(Variable("XLA_FLAGS", flag, _ORIGIN, f"GPUS_PER_NODE={count}: number of virtual CPU devices"))
    return tuple(found)


def requires(settings: Settings, device: str) -> list[Requirement]:
    """What must be installed when it runs. A dry run only lists it."""
    found = [Requirement("module", name, _INSTALL) for name in ("jax", "maxtext")]
    others = {
        "transformer_engine": device == "gpu" and _wants_transformer_engine(settings),
        "tensorboardX": settings["enable_tensorboard"],
        "wandb": settings["enable_wandb"],
    }
    fixes = {"transformer_engine": "install Transformer Engine for JAX, or take attention=dot_product"}
    found += [WANDB] if settings["enable_wandb"] else []
    return found + [
        Requirement("module", name, fixes.get(name, f"pip install {name}")) for name, needed in others.items() if needed
    ]


def _wants_transformer_engine(settings: Settings) -> bool:
    return settings["attention"].startswith("cudnn_flash_te") or (settings["quantization"] or "").startswith("te_")
