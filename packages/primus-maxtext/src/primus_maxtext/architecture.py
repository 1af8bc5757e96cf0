"""A model's architecture from MaxText's settings, as far as parameters and FLOPs follow: `translation` undone."""

from __future__ import annotations

from typing import Any, Literal

from primus_maxtext.settings import Settings
from primus_maxtext.translation import BLOCKS, Block
from primus_train.models.architecture import Architecture, LatentAttention, Mixture

__all__ = ["architecture"]

_ALIKE = {"mistral": "llama2"}
"""Blocks that differ in name only."""
_OTHERWISE = {
    "use_multimodal": 0, "engram_layers": 0, "use_indexer": 0, "share_kv_projections": 0, "padded_base_moe_mlp_dim": 0,
    "use_m3_model": 0, "mhc_expansion_rate": 1, "moe_expert_input_dim": -1, "attention_output_dim": -1,
    "global_parameter_scale": 1,
}  # fmt: skip
"""With another value of one of these, layers are others than the catalogue has words for; 0: with any."""


def architecture(settings: Settings) -> Architecture | str:
    """The model of resolved settings, or what of them the catalogue has no words for."""
    name = _ALIKE.get(settings["decoder_block"], settings["decoder_block"])
    block = BLOCKS.get(name)
    if block is None:
        return f"its layers are those of '{name}'"
    if strange := _strange(settings, block):
        return strange
    latent = "latent" in block.always
    return Architecture(
        num_layers=settings["base_num_decoder_layers"] * block.listed,
        hidden_size=settings["base_emb_dim"],
        ffn_hidden_size=settings["base_mlp_dim"],
        num_attention_heads=settings["base_num_query_heads"],
        num_kv_heads=settings["base_num_kv_heads"],
        head_dim=settings["qk_nope_head_dim"] + settings["qk_rope_head_dim"] if latent else settings["head_dim"],
        vocab_size=settings["vocab_size"],
        max_position_embeddings=settings["max_position_embeddings"],
        rope_theta=settings["rope_max_timescale"],
        norm_eps=settings["normalization_layer_epsilon"],
        tie_embeddings=settings["logits_via_embedding"],
        qkv_bias="qkv_bias" in block.also | block.always and settings["attention_bias"],
        out_bias="out_bias" in block.also and settings["attention_bias"],
        qk_norm=_qk_norm(settings, block),
        norms_per_layer=4 if "post_norms" in block.always else 2,
        attn_sinks=settings["attention_sink"],
        moe=_mixture(settings, block) if "experts" in block.always else None,
        mla=_latent(settings) if latent else None,
        mtp_layers=settings["mtp_num_layers"],
        **_window(settings, block),
    )


def _strange(settings: Settings, block: Block) -> str:
    """Why the catalogue has no words for it; empty: it has."""
    if len(settings["mlp_activations"]) != 2:
        return "its MLPs have no gate"
    if other := [name for name, usual in _OTHERWISE.items() if (settings[name] or usual) != usual]:
        return f"it has {', '.join(other)}"
    if "post_norms" in block.always and not (settings["use_post_attn_norm"] and settings["use_post_ffw_norm"]):
        return "it has norms after attention or MLP only"
    if settings["base_num_decoder_layers"] * block.listed % block.repeated:
        return f"its layers are not a multiple of {block.repeated}"
    return ""


def _qk_norm(settings: Settings, block: Block) -> Literal["none", "rms", "l2"]:
    if block.name == "gemma3":  # it asks nobody
        return "rms"
    if not settings["use_qk_norm"]:
        return "none"
    traits = block.always | block.also
    return "rms" if "qk_norm" in traits else "l2" if "l2_norm" in traits else "none"


def _window(settings: Settings, block: Block) -> dict[str, Any]:
    if "windows" in block.always and settings["sliding_window_size"]:
        return {"sliding_window": settings["sliding_window_size"], "full_attention_every": block.every}
    if "chunks" in block.always and settings["chunk_attn_window_size"]:
        every = settings["nope_layer_interval"]
        return {"attention_chunk": settings["chunk_attn_window_size"], "full_attention_every": max(every, 0) or None}
    return {}


def _mixture(settings: Settings, block: Block) -> Mixture:
    width = settings["base_moe_mlp_dim"]
    biased = settings["routed_bias"]
    return Mixture(
        num_experts=settings["num_experts"],
        topk=settings["num_experts_per_tok"],
        moe_ffn_hidden_size=width,
        shared_expert_ffn=settings["shared_experts"] * width if "shared" in block.also else 0,
        first_k_dense=settings["first_num_dense_layers"] if "first_dense" in block.also else 0,
        moe_layer_step=settings["interleave_moe_layer_step"] if "step" in block.also else 1,
        router_bias=biased and "balanced" not in block.also,
        correction_bias=biased and "balanced" in block.also,
        mlp_bias="expert_bias" in block.also and settings["mlp_bias"],
    )


def _latent(settings: Settings) -> LatentAttention:
    return LatentAttention(
        q_lora_rank=settings["q_lora_rank"] or None,
        kv_lora_rank=settings["kv_lora_rank"],
        qk_nope_head_dim=settings["qk_nope_head_dim"],
        qk_rope_head_dim=settings["qk_rope_head_dim"],
        v_head_dim=settings["v_head_dim"],
    )
