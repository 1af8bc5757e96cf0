"""Megatron's hybrid model, built on each rank from its pattern of layers."""

from __future__ import annotations

from functools import partial
from typing import Any

__all__ = ["hybrid_model"]


def hybrid_model(args: Any, config: Any, **part: Any) -> Any:
    """Return this rank's part of a hybrid model; `part` says which, as Megatron calls a model provider."""
    from megatron.core.models.hybrid.hybrid_model import HybridModel

    return HybridModel(
        config=config,
        hybrid_stack_spec=_layers(args, config),
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.max_position_embeddings,
        hybrid_layer_pattern=args.hybrid_layer_pattern,
        fp16_lm_cross_entropy=args.fp16_lm_cross_entropy,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
        position_embedding_type=args.position_embedding_type,
        rotary_percent=args.rotary_percent,
        rotary_base=args.rotary_base,
        seq_len_interpolation_factor=args.rotary_seq_len_interpolation_factor,
        **part,
    )


def _layers(args: Any, config: Any) -> Any:
    if args.spec is not None:
        from megatron.core.transformer.spec_utils import import_module

        return import_module(args.spec)
    if args.transformer_impl == "local":
        return _local_layers(config)
    from megatron.core.models.hybrid.hybrid_layer_specs import hybrid_stack_spec

    return hybrid_stack_spec


def _local_layers(config: Any) -> Any:
    """The layers of `hybrid_stack_spec` without Transformer Engine; Megatron has none."""
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
    from megatron.core.models.backends import LocalSpecProvider
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.models.hybrid.hybrid_block import HybridStack, HybridStackSubmodules
    from megatron.core.ssm.gated_delta_net import GatedDeltaNet, GatedDeltaNetSubmodules
    from megatron.core.ssm.mamba_layer import MambaLayer, MambaLayerSubmodules
    from megatron.core.ssm.mamba_mixer import MambaMixer, MambaMixerSubmodules
    from megatron.core.ssm.mlp_layer import MLPLayer
    from megatron.core.transformer import attention, mlp, multi_latent_attention, transformer_layer
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.spec_utils import ModuleSpec

    local = LocalSpecProvider()
    column, row, core = local.column_parallel_linear(), local.row_parallel_linear(), local.core_attention()
    norm = local.layer_norm(rms_norm=config.normalization == "RMSNorm")
    latent_norm = norm if config.qk_layernorm else IdentityOp
    dense = mlp.MLPSubmodules(linear_fc1=column, linear_fc2=row)

    def mixing(module: Any, submodules: Any, **params: Any) -> Any:
        inside = ModuleSpec(module=module, params=params, submodules=submodules)
        return ModuleSpec(
            module=transformer_layer.TransformerLayer,
            submodules=transformer_layer.TransformerLayerSubmodules(
                input_layernorm=norm, self_attention=inside, self_attn_bda=get_bias_dropout_add
            ),
        )

    def following(module: Any, inside: Any) -> Any:
        layer = transformer_layer.TransformerLayerSubmodules(
            pre_mlp_layernorm=norm, mlp=inside, mlp_bda=get_bias_dropout_add
        )
        return ModuleSpec(module=module, submodules=layer)

    mamba = MambaMixerSubmodules(in_proj=column, out_proj=row)
    delta = GatedDeltaNetSubmodules(in_proj=column, out_norm=norm, out_proj=row)
    full = attention.SelfAttentionSubmodules(linear_qkv=column, core_attention=core, linear_proj=row)
    latent = multi_latent_attention.MLASelfAttentionSubmodules(
        linear_q_proj=column, linear_q_down_proj=column, linear_q_up_proj=column, linear_kv_down_proj=column,
        linear_kv_up_proj=column, core_attention=core, linear_proj=row,
        q_layernorm=latent_norm if config.multi_latent_attention and config.q_lora_rank else IdentityOp,
        kv_layernorm=latent_norm,
    )  # fmt: skip
    causal = {"attn_mask_type": AttnMaskType.causal}
    return ModuleSpec(
        module=HybridStack,
        submodules=HybridStackSubmodules(
            mamba_layer=ModuleSpec(
                module=MambaLayer,
                submodules=MambaLayerSubmodules(
                    norm=norm, mixer=ModuleSpec(module=MambaMixer, submodules=mamba), mamba_bda=get_bias_dropout_add
                ),
            ),
            gdn_layer=mixing(GatedDeltaNet, delta),
            attention_layer=mixing(attention.SelfAttention, full, **causal),
            mla_layer=mixing(multi_latent_attention.MLASelfAttention, latent, **causal),
            mlp_layer=following(MLPLayer, partial(mlp.MLP.as_mlp_submodule, submodules=dense)),
            moe_layer=following(
                transformer_layer.MoETransformerLayer,
                get_moe_module_spec(use_te=False, num_experts=8, moe_grouped_gemm=False),
            ),
        ),
    )
