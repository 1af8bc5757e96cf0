"""What a training with TorchTitan needs where it runs: packages, checkpoints, a tokenizer, data."""

from __future__ import annotations

import glob
import os
import shlex

from primus_core.plan.plan import Requirement
from primus_torchtitan.model import Model
from primus_torchtitan.settings import Settings
from primus_torchtitan.text import Data
from primus_torchtitan.turbo import fp8_parts
from primus_train.backend import WANDB, BackendCall

__all__ = ["requirements"]

_INSTALL = "pip install primus-torchtitan, in the environment that runs the training"
_TORCH = "pip install 'primus-torchtitan[torch]'; for GPUs of AMD, see docs/install.md first"
_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt")
"""In one of them TorchTitan looks for a tokenizer: `components/tokenizer.py`."""


def requirements(settings: Settings, call: BackendCall, model: Model, data: Data | None) -> tuple[Requirement, ...]:
    """What must be here when it runs. A dry run only lists it."""
    names = {"torch": _TORCH, "torchtitan": _INSTALL, "triton": _TORCH}
    needed = [Requirement("module", name, fix) for name, fix in names.items()]
    if settings["metrics.enable_wandb"]:
        needed += [Requirement("module", "wandb", "pip install wandb, or set metrics.enable_wandb: false"), WANDB]
    if "." in model.family:
        needed.append(Requirement("module", model.family.split(".")[0], "install the package of the model"))
    needed += _checkpoints(settings, call)
    if fp8_parts(settings):
        needed.append(Requirement("module", "primus_turbo", "install Primus-Turbo, or use a model without FP8"))
    if data and data.corpus:
        return (*needed, *data.corpus.requires())
    if settings["training.mock_data"]:
        return tuple(needed)
    return (*needed, *_files(settings, call, model))


def _checkpoints(settings: Settings, call: BackendCall) -> list[Requirement]:
    """The one that training begins with, if the folder has none to continue from; and a folder that was named."""
    if not settings["checkpoint.enable"]:
        return []
    folder = os.path.join(call.place.directory, settings["checkpoint.folder"])
    found = []
    if os.path.isabs(settings["checkpoint.folder"]):
        found.append(Requirement("folder", folder, "set checkpoint.folder to a writable folder"))
    path = settings["checkpoint.initial_load_path"] or ""
    if "://" in path or glob.glob(f"{glob.escape(folder)}/step-*"):
        return found
    if settings["checkpoint.initial_load_in_hf"]:
        weights = path or os.path.join(call.facts.cwd, settings["hf_assets_path"])
        files = f"{weights}/*.safetensors" if os.path.isdir(weights) else weights
        found.append(Requirement("file", files, _download_weights(weights)))
    elif path:
        fix = "correct checkpoint.initial_load_path: it is one checkpoint (step-N)"
        if glob.glob(f"{glob.escape(path)}/*.safetensors"):
            fix = "add checkpoint.initial_load_in_hf=true: what is there are safetensors"
        found.append(Requirement("file", f"{path}/.metadata" if os.path.isdir(path) else path, fix))
    return found


def _files(settings: Settings, call: BackendCall, model: Model) -> list[Requirement]:
    cwd = call.facts.cwd
    assets = os.path.join(cwd, settings["hf_assets_path"])
    is_empty = os.path.isdir(assets) and not any(os.path.exists(os.path.join(assets, name)) for name in _TOKENIZERS)
    needed = os.path.join(assets, _TOKENIZERS[0]) if is_empty else assets
    found = [Requirement("file", needed, _download(needed, settings["hf_assets_path"], model.name))]
    found = found if model.family else []  # nobody knows the tokenizer of a model that was refused
    dataset, path = settings["dataloader.dataset"], settings["dataloader.dataset_path"]
    if dataset == "c4_test" and not path:
        path = "tests/assets/c4_test"  # TorchTitan's default, which only its source tree has
    given = [f"{name}=null" for name in ("dataloader.dataset", "hf_assets_path") if name in settings]
    text = " ".join(["data.text=python-stdlib", *given])
    fix = f"set dataloader.dataset_path, or train on local text, which has a tokenizer: {text}"
    return [*found, Requirement("file", os.path.join(cwd, path), fix)] if path else found


def _download(path: str, named: str, model: str) -> str:
    """How the tokenizer of a model comes into its folder: the command, where the catalogue knows the repository."""
    or_set = "or set hf_assets_path to a folder that has a tokenizer"
    if os.path.exists(path):  # nothing to be done: spare the catalogue
        return f"restore it, {or_set}"
    if not (repository := _repository(named)):
        return f"download the tokenizer of {model} into it, {or_set}"
    return f"hf download {repository} --include '*token*' --local-dir {shlex.quote(named)}\n{or_set}"


def _download_weights(folder: str) -> str:
    """How the weights of a model come into its folder."""
    or_name = "name the folder of the model's safetensors: checkpoint.initial_load_path"
    if glob.glob(f"{glob.escape(folder)}/*.safetensors"):
        return or_name
    if not (repository := _repository(folder)):
        return or_name
    return f"hf download {repository} --include '*.safetensors*' --local-dir {shlex.quote(folder)}\nor {or_name}"


def _repository(folder: str) -> str:
    """The repository at huggingface.co whose name a folder has; empty: no model of the catalogue has it."""
    from primus_train.models import catalogue

    name = os.path.basename(os.path.normpath(folder))
    return next((one.facts.hf for one in catalogue.load().values() if one.facts.hf.endswith(f"/{name}")), "")
