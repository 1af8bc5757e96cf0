"""A model's architecture from the resolved `model` section, where the catalogue has it: `translation` undone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from primus_core.errors import ConfigError
from primus_torchtitan.model import Model
from primus_torchtitan.translation import FLAVORS
from primus_train.models import catalogue
from primus_train.models.architecture import Architecture

__all__ = ["architecture"]

_DENSE = ("llama3", "qwen3")


def architecture(model: Model) -> Architecture | str:
    """The model, or why it is not known."""
    if model.family in _DENSE and model.facts and not model.facts["experts"]:
        return _dense(model.facts, normed=model.family == "qwen3")
    named = {(flavor.family, flavor.flavor): name for name, flavor in FLAVORS.items()}
    name = named.get((model.family, model.flavor or ""))
    try:
        known = catalogue.load().get(name) if name and not model.sizes else None
    except ConfigError as error:  # a package's files: no reason to fail for a model of another
        return error.what
    # TorchTitan's flavors have no MTP layers.
    return replace(known.facts, mtp_layers=0) if known else f"the catalogue does not have {model.name}"


def _dense(sizes: Mapping[str, Any], *, normed: bool) -> Architecture:
    width = sizes.get("head_dim", 128) if normed else sizes["dim"] // sizes["n_heads"]
    return Architecture(
        num_layers=sizes["n_layers"],
        hidden_size=sizes["dim"],
        ffn_hidden_size=sizes["ffn_hidden_dim"],
        num_attention_heads=sizes["n_heads"],
        num_kv_heads=sizes["n_kv_heads"],
        head_dim=width,
        vocab_size=sizes["vocab_size"],
        max_position_embeddings=sizes["max_seq_len"],
        rope_theta=sizes["rope_theta"],
        norm_eps=1e-6 if normed else 1e-5,
        tie_embeddings=sizes["weight_tying"],
        qk_norm="rms" if normed else "none",
    )
