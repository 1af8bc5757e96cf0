"""Models of TorchTitan's families with sizes of one's own. Runs in the worker: it imports TorchTitan.

The layers, their initial values and the rotary embedding are the family's, so only the numbers differ from a flavor.
"""
# ruff: noqa: SLF001  # TorchTitan has no public names for its initial values and layer builders

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from primus_torchtitan.patches._patch import no_accelerator

__all__ = ["model_spec"]


def model_spec(model: Mapping[str, Any]) -> Any:
    """The `ModelSpec` for the resolved `model` section: a flavor as TorchTitan has it, or one with own sizes."""
    registry = _registry(str(model["family"]))
    flavor, sizes = model.get("flavor"), model.get("sizes")
    backend = model.get("attn_backend") or _for_this_device(registry)
    options = {"attn_backend": backend} if backend else {}
    if not sizes:
        return registry(flavor, **options)
    spec = registry("debugmodel", **options)
    build = {"llama3": _llama3, "qwen3": _qwen3}[model["family"]]
    attention = options.get("attn_backend", "flex")
    return dataclasses.replace(spec, flavor=f"{flavor or 'custom'}-own", model=build(sizes, attention))


def _for_this_device(registry: Any) -> str:
    """Return FlexAttention on a CPU, where the kernels of other families' default do not exist."""
    default = inspect.signature(registry).parameters.get("attn_backend")
    return "flex" if default is not None and default.default == "varlen" and no_accelerator() else ""


def _registry(family: str) -> Any:
    import importlib

    module = importlib.import_module(family if "." in family else f"torchtitan.models.{family}")
    return module.model_registry


def _llama3(sizes: Mapping[str, Any], attention: str) -> Any:
    import torchtitan.models.llama3 as family
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm

    dim, heads, vocab = sizes["dim"], sizes["n_heads"], sizes["vocab_size"]
    rope = ComplexRoPE.Config(
        dim=dim // heads,
        max_seq_len=sizes["max_seq_len"],
        theta=sizes["rope_theta"],
        scaling=sizes["rope_scaling"],
        scaling_factor=sizes["rope_scaling_factor"],
    )
    tied = sizes["weight_tying"]
    embedding = family._EMBEDDING_SKIP_INIT if tied else family._EMBEDDING_INIT
    return family.Llama3Model.Config(
        dim=dim,
        vocab_size=vocab,
        enable_weight_tying=tied,
        tok_embeddings=Embedding.Config(num_embeddings=vocab, embedding_dim=dim, param_init=embedding),
        norm=RMSNorm.Config(normalized_shape=dim, param_init=family._NORM_INIT),
        lm_head=Linear.Config(in_features=dim, out_features=vocab, param_init=family._output_linear_init(dim)),
        layers=family._build_llama3_layers(
            n_layers=sizes["n_layers"],
            dim=dim,
            n_heads=heads,
            n_kv_heads=sizes["n_kv_heads"],
            hidden_dim=sizes["ffn_hidden_dim"],
            rope=rope,
            attn_backend=attention,
        ),
    )


def _qwen3(sizes: Mapping[str, Any], attention: str) -> Any:
    import torchtitan.models.qwen3 as family
    from torchtitan.models.common import CosSinRoPE, Embedding, Linear

    dim, vocab, head_dim = sizes["dim"], sizes["vocab_size"], sizes["head_dim"]
    tied = sizes["weight_tying"]
    embedding = family._EMBEDDING_SKIP_INIT if tied else family._EMBEDDING_INIT
    return family.Qwen3Model.Config(
        dim=dim,
        vocab_size=vocab,
        enable_weight_tying=tied,
        norm=family._qwen3_norm(dim),
        tok_embeddings=Embedding.Config(num_embeddings=vocab, embedding_dim=dim, param_init=embedding),
        lm_head=Linear.Config(in_features=dim, out_features=vocab, param_init=family._LINEAR_INIT),
        layers=family._build_qwen3_layers(
            n_layers=sizes["n_layers"],
            dim=dim,
            n_heads=sizes["n_heads"],
            n_kv_heads=sizes["n_kv_heads"],
            head_dim=head_dim,
            hidden_dim=sizes["ffn_hidden_dim"],
            attn_backend=attention,
            rope=CosSinRoPE.Config(dim=head_dim, max_seq_len=sizes["max_seq_len"], theta=sizes["rope_theta"]),
        ),
    )
