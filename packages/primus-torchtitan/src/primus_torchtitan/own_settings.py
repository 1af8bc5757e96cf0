"""The settings that Primus adds to TorchTitan's, in one table."""

from __future__ import annotations

from primus_data.training.section import rows, rows_of_prefixes
from primus_train.kit.settings import PrimusSetting

__all__ = ["DATA", "MODEL", "SETTINGS"]


_ADAM = "`optimizer.param_groups[0].optimizer_kwargs`"
_POLICIES = ("none", "selective", "full", "memory_budget")

_LOGS = "accepted but ignored: the log of each rank has all of its output"
_KERNELS = "accepted but ignored: an option of AMD's kernels that changes only the speed"
_FP8 = "`gemm_fp8` and `grouped_gemm_fp8` of Primus-Turbo; requires the package `primus_turbo`"

SETTINGS = (
    PrimusSetting("auto_continue_train", "bool", True,
        "continue from the newest checkpoint of an earlier, unfinished run",
        "`checkpoint.initial_load_path`, all of the training state"),
    PrimusSetting("optimizer.name", "str", "AdamW", "the optimizer of all parameters",
        "`optimizer.param_groups[0].optimizer_name`", ("Adam", "AdamW")),
    PrimusSetting("optimizer.lr", "float", 8e-4, "learning rate after warm-up", _ADAM, least=0),
    PrimusSetting("optimizer.beta1", "float", 0.9, "decay of the first moment", _ADAM + ".betas", least=0),
    PrimusSetting("optimizer.beta2", "float", 0.95, "decay of the second moment", _ADAM + ".betas", least=0),
    PrimusSetting("optimizer.eps", "float", 1e-8, "added to the denominator", _ADAM, least=0),
    PrimusSetting("optimizer.weight_decay", "float", 0.1, "decoupled weight decay", _ADAM, least=0),
    PrimusSetting("activation_checkpoint.mode", "str", "selective", "what is computed again in the backward pass",
        "the class of `activation_checkpoint`: none, SelectiveAC, FullAC or MemoryBudgetAC", _POLICIES),
    PrimusSetting("loss.kind", "str", "chunked_cross_entropy",
        "`chunked_cross_entropy` never holds the logits of a whole sequence in memory",
        "the class of `loss`: ChunkedLossWrapper around CrossEntropyLoss, or the latter alone",
        ("chunked_cross_entropy", "cross_entropy")),
    PrimusSetting("training.mock_data", "bool", False, "train on random tokens", "a data loader of Primus"),
    *(PrimusSetting(name, "str", None, _LOGS, "-") for name in ("sink_level", "file_sink_level", "stderr_sink_level")),
    PrimusSetting("converters", "list", None, "what is converted in the model, as `model.converters` in AMD's Primus",
        "`quantize.linear.float8`: linear layers of Primus-Turbo", ("primus_turbo", "quantize.linear.float8")),
    PrimusSetting("primus_turbo.enable_primus_turbo", "bool", False, "enable Primus-Turbo, AMD's kernels",
        "needed by the settings below"),
    PrimusSetting("primus_turbo.use_turbo_float8_linear", "bool", False,
        "with the converter `quantize.linear.float8`: FP8 in linear layers, one scale a tensor", _FP8),
    PrimusSetting("primus_turbo.use_turbo_grouped_mm", "bool", False,
        "with use_moe_fp8: FP8 in the experts; alone, it only changes the speed and is ignored", _FP8),
    PrimusSetting("primus_turbo.use_moe_fp8", "bool", False,
        "with use_turbo_grouped_mm: FP8 in the experts, one scale a tensor", _FP8),
    *(PrimusSetting(f"primus_turbo.{name}", "bool", False, _KERNELS, "-")
      for name in ("use_turbo_attention", "use_classic_attention", "use_turbo_async_tp", "enable_embedding_autocast")),
    PrimusSetting("primus_turbo.use_turbo_mx_linear", "bool", False,
        "accepted but ignored: no model of AMD's Primus has the converter that reads it", "-"),
    PrimusSetting("primus_turbo.enable_attention_float8", "bool", False,
        "must be false: FP8 attention is not supported", "-", (False,)),
)  # fmt: skip
"""Beside TorchTitan's own, at the top of a module's settings."""

_READER = "a data loader of Primus instead of `dataloader.dataset`"
DATA = (
    *rows(f"prepared in a step before the worker; {_READER}", "`model.vocab_size`, which is its default"),
    *rows_of_prefixes(_READER, "the same for `validator.dataloader.dataset`"),
    PrimusSetting("seed", "int", 1234, "seed of the order of samples, with the default of Megatron",
        "the order of the data loader", least=0),
)  # fmt: skip
"""Below `data`."""

MODEL = (
    PrimusSetting("family", "str", None,
        "a family of TorchTitan, or the dotted name of a module with a `model_registry`",
        "`torchtitan.models.<family>.model_registry`"),
    PrimusSetting("flavor", "str", None, "the name of a size in the family", "`model_registry(flavor)`"),
    PrimusSetting("attn_backend", "str", None, "the attention kernel; by default the family's",
        "`model_registry(attn_backend=...)`", ("flex", "flex_flash", "varlen")),
    PrimusSetting("hf_assets_path", "str", None, "folder of the model's tokenizer (and weights)", "`hf_assets_path`"),
    PrimusSetting("dim", "int", None, "width of the residual stream", "`Config.dim`", least=1),
    PrimusSetting("n_layers", "int", None, "number of layers", "`Config.layers`", least=1),
    PrimusSetting("n_heads", "int", None, "attention heads", "`attention.n_heads`", least=1),
    PrimusSetting("n_kv_heads", "int", None, "heads of keys and values; by default n_heads", "`attention.n_kv_heads`",
        least=1),
    PrimusSetting("head_dim", "int", None, "width of a head (qwen3; 128)", "`attention.head_dim`", least=2),
    PrimusSetting("vocab_size", "int", None, "number of tokens; by default that of `data`", "`Config.vocab_size`",
        least=2),
    PrimusSetting("ffn_hidden_dim", "int", None, "width of the feed-forward layer; by default from the three below",
        "`feed_forward.w1.out_features`", least=1),
    PrimusSetting("multiple_of", "int", 256, "the feed-forward width is rounded up to a multiple of this",
        "`compute_ffn_hidden_dim`", least=1),
    PrimusSetting("ffn_dim_multiplier", "float", 1.0, "factor on 8/3 dim, the feed-forward width",
        "`compute_ffn_hidden_dim`", least=0),
    PrimusSetting("rope_theta", "float", 500000.0, "base of the rotary embedding", "`rope.theta`", least=1),
    PrimusSetting("rope_scaling", "str", "none", "Llama 3.1's scaling of the rotary embedding (llama3)",
        "`rope.scaling`", ("none", "llama")),
    PrimusSetting("rope_scaling_factor", "float", 8.0, "factor of this scaling (32 in Llama 3.2)",
        "`rope.scaling_factor`", least=1),
    PrimusSetting("max_seq_len", "int", 131072, "longest sequence of the rotary embedding", "`rope.max_seq_len`",
        least=1),
    PrimusSetting("weight_tying", "bool", False, "embedding and output layer share their weights",
        "`Config.enable_weight_tying`"),
)  # fmt: skip
"""Below `model`. The sizes, `dim` and what follows it, make a model of one's own; with `flavor` they change it."""
