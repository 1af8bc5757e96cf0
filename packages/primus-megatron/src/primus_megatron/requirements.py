"""What a training with Megatron needs where it runs: packages, or the folder of Megatron's code."""

from __future__ import annotations

from primus_core.plan.plan import Requirement
from primus_megatron.installation import SETTING, Installation
from primus_megatron.settings import Settings

__all__ = ["modules"]

_INSTALL = "pip install primus-megatron, in the environment that runs the training"
_TORCH = "pip install 'primus-megatron[torch]'; for GPUs of AMD, see docs/install.md first"


def modules(settings: Settings, megatron: Installation) -> list[Requirement]:
    """What must be installed when it runs. A dry run only lists it."""
    names = ["torch", "megatron.training", "psutil"]
    found = [Requirement("module", name, _TORCH if name == "torch" else _INSTALL) for name in names]
    if folder := megatron.checkout:
        found[1] = Requirement("file", folder, f"correct {SETTING}: it is the folder of Megatron's code")
    if settings["wandb_project"]:
        found.append(Requirement("module", "wandb", "pip install wandb, or set disable_wandb: true"))
    if settings["tensorboard_dir"]:
        found.append(Requirement("module", "tensorboard", f"pip install tensorboard, {_without_tensorboard(settings)}"))
    if settings["tokenizer_type"] == "HuggingFaceTokenizer":
        found.append(Requirement("module", "transformers", "pip install transformers, which reads the tokenizer"))
    return found


def _without_tensorboard(settings: Settings) -> str:
    """Return what trains without it. Whoever names a folder, or asks for what needs one, has it all the same."""
    is_traced = settings["profile"] and settings["use_pytorch_profiler"]
    if is_traced and settings.where("profile").startswith("command line: --profile "):
        return "which writes the trace; or leave out --profile"
    unset = {
        "profile: false": is_traced,
        "disable_wandb: true": settings["wandb_project"],
        "tensorboard_dir: null": "tensorboard_dir" in settings.texts,
        "disable_tensorboard: true": not settings["disable_tensorboard"],
    }
    needs = "which writes the trace; " if is_traced else "which Weights & Biases needs; "
    is_asked = is_traced or settings["wandb_project"]
    return f"{needs if is_asked else ''}or set {' and '.join(one for one, is_needed in unset.items() if is_needed)}"
