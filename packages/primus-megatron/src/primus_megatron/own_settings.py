"""The settings that Primus adds to Megatron's, in one table."""

from __future__ import annotations

from primus_data.training.section import rows
from primus_train.kit.settings import PrimusSetting

__all__ = ["CONFIG_FIELDS", "DATA", "SETTINGS", "SPEED"]


SPEED = "accepted but ignored: an option of AMD's kernels that changes only the speed"
_FREQUENCIES = "the frequencies of its rotary embedding, where its code has a constant"
CONFIG_FIELDS = ("original_max_position_embeddings", "beta_fast", "beta_slow")
"""Megatron copies its arguments to the fields of the same name, and these have no argument."""
_OF_CONFIG = "the same field of `MLATransformerConfig`, for which there is no argument"

SETTINGS = (
    PrimusSetting("backend_path", "str", None, "root of the Megatron-LM checkout to use (default: `BACKEND_PATH`)",
        "the first place where the ranks look for `megatron`"),
    PrimusSetting("auto_continue_train", "bool", True,
        "continue from the newest checkpoint of an earlier, unfinished run",
        "`load`, `ckpt_step`, all of the training state"),
    PrimusSetting("norm_epsilon", "float", None, "added to the variance in each norm", "`layernorm_epsilon`", least=0),
    PrimusSetting("rope_low_freq_factor", "float", 1.0,
        "with use_rope_scaling: wavelengths above rope_original_max_position divided by this are scaled", _FREQUENCIES),
    PrimusSetting("rope_high_freq_factor", "float", 4.0,
        "with use_rope_scaling: wavelengths below rope_original_max_position divided by this are not scaled",
        _FREQUENCIES),
    PrimusSetting("rope_original_max_position", "int", 8192,
        "with use_rope_scaling: the context length of the model before scaling", _FREQUENCIES),
    PrimusSetting("original_max_position_embeddings", "int", None,
        "with multi_latent_attention and YaRN: the context length of the model before scaling (4096)", _OF_CONFIG),
    PrimusSetting("beta_fast", "float", None, "with multi_latent_attention and YaRN (32)", _OF_CONFIG),
    PrimusSetting("beta_slow", "float", None, "with multi_latent_attention and YaRN (1)", _OF_CONFIG),
    PrimusSetting("final_logit_softcapping", "float", None, "soft cap on the logits: cap * tanh(logits / cap)",
        "a function around the output layer", least=0),
    PrimusSetting("router_logit_softcapping", "float", None, "soft cap on the scores of experts",
        "a function around the router's gate", least=0),
    PrimusSetting("save_in_run", "bool", True, "with save_interval and without `save`: save into the run directory",
        "`save`"),
    PrimusSetting("mock_vocab_size", "int", None, "with mock_data, if vocab_size is not set: the number of tokens",
        "`vocab_size`", least=2),
    PrimusSetting("disable_last_saving", "bool", False, "save no checkpoint when the last iteration is done",
        "the save at the end of `pretrain`"),
    PrimusSetting("disable_tensorboard", "bool", True, "write nothing for TensorBoard",
        "false, or with `wandb_project`: `tensorboard_dir` is `tensorboard` in the run directory, unless it is set"),
    PrimusSetting("disable_wandb", "bool", False, "disable Weights & Biases even if `wandb_project` is set",
        "`wandb_project`; where it is on, `wandb_exp_name` and `wandb_save_dir` are the run's unless set"),
    PrimusSetting("enable_primus_turbo", "bool", False, "enable Primus-Turbo, AMD's kernels",
        "requires the package `primus_turbo`"),
    PrimusSetting("use_turbo_attention", "bool", False, "attention of Primus-Turbo; requires enable_primus_turbo",
        "the layers' `core_attention`"),
    PrimusSetting("use_turbo_grouped_mlp", "bool", False,
        "grouped MLP (experts) of Primus-Turbo; requires enable_primus_turbo",
        "an error for a model with experts: not supported yet"),
    PrimusSetting("use_turbo_grouped_gemm", "bool", False, "alias of use_turbo_grouped_mlp",
        "see use_turbo_grouped_mlp"),
    PrimusSetting("enable_turbo_attention_float8", "bool", False,
        "FP8 attention of Primus-Turbo; not supported yet", "must be false", (False,)),
    PrimusSetting("use_turbo_gemm", "bool", False, SPEED, "-"),
    PrimusSetting("use_turbo_rms_norm", "bool", False, SPEED, "-"),
    PrimusSetting("use_turbo_permute_padding", "bool", False, SPEED, "-"),
    PrimusSetting("use_turbo_deepep", "bool", False, SPEED, "-"),
    PrimusSetting("turbo_deepep_num_cu", "int", None, SPEED, "-"),
    PrimusSetting("turbo_deepep_use_comm_stream", "bool", False, SPEED, "-"),
    PrimusSetting("turbo_sync_free_moe_stage", "int", 0, SPEED, "-"),
    PrimusSetting("moe_use_fused_router_with_aux_score", "bool", False, SPEED, "-"),
    PrimusSetting("moe_use_legacy_grouped_gemm", "bool", False, SPEED, "-"),
    PrimusSetting("no_fp8_weight_transpose_cache", "bool", False, SPEED, "-"),
    PrimusSetting("stderr_sink_level", "str", None,
        "accepted but ignored: the log of each rank has all of its stderr", "-"),
    PrimusSetting("log_avg_skip_iterations", "int", None, "accepted but ignored: metrics.jsonl has every step", "-"),
    PrimusSetting("log_avg_reset_interval", "int", None, "accepted but ignored: metrics.jsonl has every step", "-"),
)  # fmt: skip
"""Beside Megatron's own, at the top of a module's settings."""

DATA = rows(
    "prepared in a step before the worker; `train_data_path`, `valid_data_path`, `tokenizer_type`, `vocab_size`",
    "`vocab_size`, of which Megatron's NullTokenizer does not count the end of document before 0.18",
)
"""Below `data`."""
