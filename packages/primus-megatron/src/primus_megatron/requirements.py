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
    for name, wanted in (
        ("wandb", settings["wandb_project"]),
        ("tensorboard", settings["tensorboard_dir"]),
    ):
        if wanted:
            found.append(Requirement("module", name, f"pip install {name}, or set disable_{name}: true"))
    if settings["tokenizer_type"] == "HuggingFaceTokenizer":
        found.append(Requirement("module", "transformers", "pip install transformers, which reads the tokenizer"))
    return found
