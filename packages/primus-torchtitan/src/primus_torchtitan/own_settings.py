"""The settings that Primus adds to TorchTitan's, in one table."""

from __future__ import annotations

from primus_train.kit.settings import Own

__all__ = ["DATA", "MODEL", "SETTINGS"]


_ADAM = "`optimizer.param_groups[0].optimizer_kwargs`"
_POLICIES = ("none", "selective", "full", "memory_budget")

_LOGS = "accepted but ignored: every rank's output is whole in its log"
_KERNELS = "accepted but ignored: AMD's kernels are not connected to TorchTitan; they change the speed and no result"
_OTHER = "false alone: AMD's kernels, which would do it, are not connected to TorchTitan"

SETTINGS = (
    Own("auto_continue_train", "bool", True, "continue from the newest checkpoint of an earlier, unfinished run",
        "`checkpoint.initial_load_path`, all of the training state"),
    Own("optimizer.name", "str", "AdamW", "the optimizer of all parameters",
        "`optimizer.param_groups[0].optimizer_name`", ("Adam", "AdamW")),
    Own("optimizer.lr", "float", 8e-4, "learning rate after warm-up", _ADAM, least=0),
    Own("optimizer.beta1", "float", 0.9, "decay of the first moment", _ADAM + ".betas", least=0),
    Own("optimizer.beta2", "float", 0.95, "decay of the second moment", _ADAM + ".betas", least=0),
    Own("optimizer.eps", "float", 1e-8, "added to the denominator", _ADAM, least=0),
    Own("optimizer.weight_decay", "float", 0.1, "decoupled weight decay", _ADAM, least=0),
    Own("activation_checkpoint.mode", "str", "selective", "what is computed again in the backward pass",
        "the class of `activation_checkpoint`: none, SelectiveAC, FullAC or MemoryBudgetAC", _POLICIES),
    Own("loss.kind", "str", "chunked_cross_entropy", "whether the logits of a sequence exist all at once",
        "the class of `loss`: ChunkedLossWrapper around CrossEntropyLoss, or the latter alone",
        ("chunked_cross_entropy", "cross_entropy")),
    Own("training.mock_data", "bool", False, "false alone: TorchTitan has no made-up tokens", "-", (False,)),
    *(Own(name, "str", None, _LOGS, "-") for name in ("sink_level", "file_sink_level", "stderr_sink_level")),
    *(Own(f"primus_turbo.{name}", "bool", False, _KERNELS, "-")
      for name in ("enable_primus_turbo", "use_turbo_attention", "use_turbo_grouped_mm", "use_classic_attention")),
    *(Own(f"primus_turbo.{name}", "bool", False, _OTHER, "-", (False,))
      for name in ("enable_attention_float8", "use_moe_fp8", "use_turbo_float8_linear", "use_turbo_mx_linear")),
)  # fmt: skip
"""Beside TorchTitan's own, at the top of a module's settings."""

DATA = (
    Own("text", "str", None, "`python-stdlib`, or a folder of text files, to train on",
        "a step before the worker; `dataloader.dataset`, `dataloader.dataset_path`, `hf_assets_path`"),
    Own("vocab_size", "int", None, "size of the tokenizer that is trained on the text; by default the model's",
        "the tokenizer below `hf_assets_path`", least=258),
    Own("document_chars", "int", 0, "cut documents at line ends into pieces of about this size; 0: whole files",
        "the documents of `dataloader.dataset_path`", least=0),
    Own("cache", "str", None, "folder for prepared text; by default `data` in `$PRIMUS_CACHE`", "-"),
)  # fmt: skip
"""Below `data`."""

MODEL = (
    Own("family", "str", None, "a family of TorchTitan, or the dotted name of a module with a `model_registry`",
        "`torchtitan.models.<family>.model_registry`"),
    Own("flavor", "str", None, "a size that the family has by name", "`model_registry(flavor)`"),
    Own("attn_backend", "str", None, "the attention kernel; by default the family's",
        "`model_registry(attn_backend=...)`", ("flex", "flex_flash", "varlen")),
    Own("hf_assets_path", "str", None, "folder of the model's tokenizer (and weights)", "`hf_assets_path`"),
    Own("dim", "int", None, "width of the residual stream", "`Config.dim`", least=1),
    Own("n_layers", "int", None, "number of layers", "`Config.layers`", least=1),
    Own("n_heads", "int", None, "attention heads", "`attention.n_heads`", least=1),
    Own("n_kv_heads", "int", None, "heads of keys and values; by default n_heads", "`attention.n_kv_heads`", least=1),
    Own("head_dim", "int", None, "width of a head (qwen3; 128)", "`attention.head_dim`", least=2),
    Own("vocab_size", "int", None, "number of tokens; by default that of `data`", "`Config.vocab_size`", least=2),
    Own("ffn_hidden_dim", "int", None, "width of the feed-forward layer; by default from the three below",
        "`feed_forward.w1.out_features`", least=1),
    Own("multiple_of", "int", 256, "the feed-forward width is rounded up to a multiple of this",
        "`compute_ffn_hidden_dim`", least=1),
    Own("ffn_dim_multiplier", "float", 1.0, "factor on 8/3 dim, the feed-forward width",
        "`compute_ffn_hidden_dim`", least=0),
    Own("rope_theta", "float", 500000.0, "base of the rotary embedding", "`rope.theta`", least=1),
    Own("rope_scaling", "str", "none", "Llama 3.1's stretching of the rotary embedding (llama3)",
        "`rope.scaling`", ("none", "llama")),
    Own("rope_scaling_factor", "float", 8.0, "factor of this stretching (32 in Llama 3.2)", "`rope.scaling_factor`",
        least=1),
    Own("max_seq_len", "int", 131072, "longest sequence of the rotary embedding", "`rope.max_seq_len`", least=1),
    Own("weight_tying", "bool", False, "embedding and output layer share their weights",
        "`Config.enable_weight_tying`"),
)  # fmt: skip
"""Below `model`. The sizes, `dim` and what follows it, make a model of one's own; with `flavor` they change it."""
