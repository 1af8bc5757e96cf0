"""The model that Megatron trains, built on each rank from Megatron's own arguments and layer specifications."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from primus_core.errors import RequestError
from primus_megatron.hybrid_layers import hybrid_model
from primus_megatron.soft_caps import cap_logits
from primus_megatron.turbo import with_turbo_attention

__all__ = ["model_provider"]


def model_provider(
    pre_process: bool = True,
    post_process: bool = True,
    vp_stage: int | None = None,
    config: Any = None,
    pg_collection: Any = None,
    own: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """This rank's part of a hybrid model, or of a GPT: dense, with experts, latent attention or multi-token prediction.

    `own` has the settings that Primus adds, where they are not their defaults.
    """
    from megatron.core.models.gpt import GPTModel
    from megatron.training import get_args
    from megatron.training.arguments import core_transformer_config_from_args

    args = get_args()
    _check_tokens(args)
    config = config or core_transformer_config_from_args(args)
    if getattr(args, "hybrid_layer_pattern", None):
        part = {"pre_process": pre_process, "post_process": post_process, "vp_stage": vp_stage}
        hybrid = hybrid_model(args, config, pg_collection=pg_collection, **part)
        cap_logits(hybrid, own)
        return hybrid
    spec = _layers(args, config, vp_stage)
    if own.get("use_turbo_attention"):
        spec = with_turbo_attention(spec)
    stretching = _stretching(args, own)
    model = GPTModel(
        config=config,
        transformer_layer_spec=spec,
        mtp_block_spec=_further_tokens(args, config, spec, vp_stage),
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.max_position_embeddings,
        pre_process=pre_process,
        post_process=post_process,
        fp16_lm_cross_entropy=args.fp16_lm_cross_entropy,
        parallel_output=True,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        position_embedding_type=args.position_embedding_type,
        rotary_percent=args.rotary_percent,
        rotary_base=args.rotary_base,
        rope_scaling=args.use_rope_scaling and not stretching,
        rope_scaling_factor=args.rope_scaling_factor,
        seq_len_interpolation_factor=args.rotary_seq_len_interpolation_factor,
        vp_stage=vp_stage,
        pg_collection=pg_collection,
    )
    if stretching:
        rotary = model.rotary_pos_emb
        formula = rotary._apply_scaling  # noqa: SLF001  # Megatron's own, with constants that are others here
        rotary.inv_freq = formula(rotary.inv_freq, args.rope_scaling_factor, *stretching)
    cap_logits(model, own)
    return model


_STRETCHING = {"rope_low_freq_factor": 1.0, "rope_high_freq_factor": 4.0, "rope_original_max_position": 8192}
"""What Megatron's rotary embedding has in its code for Llama 3, and no argument for."""


def _stretching(args: Any, own: Mapping[str, Any]) -> list[Any]:
    """What the model has in their place; empty: the same."""
    found = {name: own.get(name, value) for name, value in _STRETCHING.items()}
    return list(found.values()) if args.use_rope_scaling and found != _STRETCHING else []


def _check_tokens(args: Any) -> None:
    """A token beyond the embedding would be an assertion of the device, long after this."""
    from megatron.training import get_tokenizer

    known, rows = get_tokenizer().vocab_size, args.padded_vocab_size
    if known > rows:
        raise RequestError(
            f"the tokenizer has {known} tokens, but the model has {rows}",
            why="vocab_size is the model's, which need not be that of the tokenizer",
            fix=f"set vocab_size: {known}",
        )


def _layers(args: Any, config: Any, vp_stage: int | None) -> Any:
    if args.spec is not None:
        from megatron.core.transformer.spec_utils import import_module

        return import_module(args.spec)
    if getattr(args, "experimental_attention_variant", None):
        return _experimental_layers(config, vp_stage)
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec

    spec = get_gpt_decoder_block_spec(
        config,
        use_transformer_engine=args.transformer_impl == "transformer_engine",
        normalization=args.normalization,
        qk_l2_norm=args.qk_l2_norm,
        vp_stage=vp_stage,
    )
    if args.qk_l2_norm and config.no_rope_freq:
        _norm_with_rope_only(spec, config, vp_stage)
    return spec


def _experimental_layers(config: Any, vp_stage: int | None) -> Any:
    """Gated delta nets and the like, which Megatron specifies apart from all other layers."""
    from megatron.core.models.gpt import experimental_attention_variant_module_specs as variants

    return variants.get_transformer_block_with_experimental_attention_variant_spec(config=config, vp_stage=vp_stage)


def _norm_with_rope_only(spec: Any, config: Any, vp_stage: int | None) -> None:
    """Llama 4's layers without a rotary embedding have no norm of queries and keys; Megatron's have it in all."""
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

    first = get_transformer_layer_offset(config, vp_stage)
    for index, layer in enumerate(spec.layer_specs):
        if config.no_rope_freq[first + index]:
            spec.layer_specs[index] = own = deepcopy(layer)  # Megatron repeats one specification
            attention = own.submodules.self_attention.submodules
            attention.q_layernorm = attention.k_layernorm = IdentityOp


def _further_tokens(args: Any, config: Any, spec: Any, vp_stage: int | None) -> Any:
    if args.mtp_num_layers is None:
        return None
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_mtp_block_spec

    te = args.transformer_impl == "transformer_engine"
    return get_gpt_mtp_block_spec(config, spec, use_transformer_engine=te, vp_stage=vp_stage)
