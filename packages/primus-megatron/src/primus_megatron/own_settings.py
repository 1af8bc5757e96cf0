"""The settings that Primus adds to Megatron's, in one table."""

from __future__ import annotations

from primus_train.kit.settings import Own
from primus_train.text.data import rows

__all__ = ["DATA", "SETTINGS", "SPEED"]


SPEED = "accepted but ignored: of the kernels of AMD's Primus; it changes the speed and no result"
_FREQUENCIES = "the frequencies of its rotary embedding, where its code has a constant"

SETTINGS = (
    Own("backend_path", "str", None, "top folder of a Megatron-LM checkout to use; otherwise `BACKEND_PATH` is it",
        "the first place where the ranks look for `megatron`"),
    Own("auto_continue_train", "bool", True, "continue from the newest checkpoint of an earlier, unfinished run",
        "`load`, `ckpt_step`, all of the training state"),
    Own("norm_epsilon", "float", None, "added to the variance in each norm", "`layernorm_epsilon`", least=0),
    Own("rope_low_freq_factor", "float", 1.0,
        "with use_rope_scaling: wavelengths above the original length divided by it are stretched", _FREQUENCIES),
    Own("rope_high_freq_factor", "float", 4.0, "those below the original length divided by it are not", _FREQUENCIES),
    Own("rope_original_max_position", "int", 8192, "that length: the model's before it was stretched", _FREQUENCIES),
    Own("disable_last_saving", "bool", False, "save no checkpoint when the last iteration is done",
        "the save at the end of `pretrain`"),
    Own("disable_tensorboard", "bool", True, "write nothing for TensorBoard",
        "false, or with `wandb_project`: `tensorboard_dir` is `tensorboard` in the run directory, unless it is set"),
    Own("disable_wandb", "bool", False, "no Weights & Biases, although `wandb_project` is set",
        "`wandb_project`; where it is on, `wandb_exp_name` and `wandb_save_dir` are the run's unless set"),
    Own("enable_primus_turbo", "bool", False, "AMD's kernels of Primus-Turbo", "asks for the package `primus_turbo`"),
    Own("use_turbo_attention", "bool", False, "its attention; needs enable_primus_turbo",
        "the layers' `core_attention`"),
    Own("use_turbo_grouped_mlp", "bool", False, "its experts; needs enable_primus_turbo",
        "refused for a model with experts: not connected yet"),
    Own("use_turbo_grouped_gemm", "bool", False, "another name of use_turbo_grouped_mlp", "as that"),
    Own("enable_turbo_attention_float8", "bool", False, "its attention in FP8, which is not connected", "false alone",
        (False,)),
    Own("use_turbo_gemm", "bool", False, SPEED, "-"),
    Own("use_turbo_rms_norm", "bool", False, SPEED, "-"),
    Own("use_turbo_permute_padding", "bool", False, SPEED, "-"),
    Own("use_turbo_deepep", "bool", False, SPEED, "-"),
    Own("turbo_deepep_num_cu", "int", None, SPEED, "-"),
    Own("turbo_deepep_use_comm_stream", "bool", False, SPEED, "-"),
    Own("turbo_sync_free_moe_stage", "int", 0, SPEED, "-"),
    Own("moe_use_fused_router_with_aux_score", "bool", False, SPEED, "-"),
    Own("moe_use_legacy_grouped_gemm", "bool", False, SPEED, "-"),
    Own("no_fp8_weight_transpose_cache", "bool", False, SPEED, "-"),
    Own("stderr_sink_level", "str", None, "accepted but ignored: every rank's stderr is whole in its log", "-"),
    Own("log_avg_skip_iterations", "int", None, "accepted but ignored: metrics.jsonl has every step", "-"),
    Own("log_avg_reset_interval", "int", None, "accepted but ignored: metrics.jsonl has every step", "-"),
)  # fmt: skip
"""Beside Megatron's own, at the top of a module's settings."""

DATA = rows(
    "a step before the worker; `train_data_path`, `valid_data_path`, `tokenizer_type`, `vocab_size`",
    "`vocab_size`, of which Megatron's NullTokenizer does not count the end of document before 0.18",
)
"""Below `data`."""
