"""AMD's presets for Megatron: what a plan hands to Megatron equals AMD's own merge, argument by argument."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from tests.amd_merge import merged, released, write_checkout
from tests.planning import Resolve

from primus_core.config import files
from primus_core.config.document import Document
from primus_core.errors import ConfigError
from primus_megatron import fork_settings
from primus_megatron.backend import MEGATRON
from primus_megatron.generate_presets import reduced
from primus_megatron.schema import load, shipped
from primus_train import experiment

FILES = {
    "modules/trainer_base.yaml": """
        bf16: true
        lr: 2.5e-5
        weight_decay: 0.0
        sequence_parallel: 1
        moe_flex_dispatcher_backend: null
        save: null
        save_interval: 20000
        rerun_mode: disabled
        patch_zero_bubble: false
        sink_level: null
        disable_wandb: true
        wandb_project: null
        auto_continue_train: false
        """,
    "modules/pre_trainer.yaml": """
        extends: [trainer_base.yaml]
        train_iters: 1000
        seq_length: 1024
        micro_batch_size: 2
        eval_iters: 0
        num_workers: 8
        dataloader_type: cyclic
        use_flash_attn: true
        stderr_sink_level: INFO
        """,
    "models/base.yaml": """
        bf16: false
        untie_embeddings_and_output_weights: true
        add_bias_linear: false
        swiglu: true
        normalization: RMSNorm
        position_embedding_type: rope
        hidden_dropout: 0.0
        attention_dropout: 0.0
        attention_softmax_in_fp32: true
        final_logit_softcapping: null
        model_type: gpt
        """,
    "models/tiny.yaml": """
        extends: [base.yaml]
        num_layers: 4
        hidden_size: 64
        ffn_hidden_size: 256
        num_attention_heads: 4
        max_position_embeddings: 8192
        tokenizer_type: Llama3Tokenizer
        tokenizer_model: acme/tiny
        """,
    "models/other.yaml": "extends: [base.yaml]\nmodel_type: mamba\nnum_layers: 4\n",
}
OVERRIDES: dict[str, Any] = {
    "mock_data": True, "train_iters": 50, "lr": 1e-05, "adam_beta2": 0.95, "save": None, "pp_warmup": True,
    "tensor_model_parallel_size": 1, "cross_entropy_loss_fusion": True, "stderr_sink_level": "DEBUG",
}  # fmt: skip
SET_BY_PRIMUS = {
    "data_cache_path", "logging_level", "check_for_nan_in_loss_and_grad", "tokenizer_type", "tokenizer_model",
    "vocab_size", "null_tokenizer_eod_id", "padded_vocab_size", "tensorboard_dir", "sequence_parallel",
    "eval_interval", "transformer_impl", "gradient_accumulation_fusion", "masked_softmax_fusion",
    "no_persist_layer_norm", "apply_rope_fusion",
}  # fmt: skip
"""The run directory's, mock data's, those of kernels that are not installed, and what AMD's Primus changes later, too."""


@pytest.fixture
def plan(tmp_path: Path, resolve: Resolve) -> Any:
    """`plan(model, overrides)`: what the backend plans for AMD's preset and model of a small checkout, on 8 GPUs."""
    checkout = write_checkout(tmp_path / "checkout", "megatron", FILES)
    folder = released(tmp_path / "presets", checkout, "megatron", reduced)

    def planned(model: str = "tiny.yaml", overrides: dict[str, Any] = OVERRIDES) -> Any:
        module = {"framework": "megatron", "config": "pre_trainer.yaml", "model": model, "overrides": overrides}
        path = tmp_path / "exp.yaml"
        path.write_text(json.dumps({"exp_name": "x", "modules": {"pre_trainer": module}}))
        document = files.read(str(path), {})
        found = experiment.merged(
            document, "pre_trainer", folder=folder, environ={}, beside=str(tmp_path), command_line=Document({})
        )
        return resolve(json.dumps(found.data), ranks=8, gpus=8)

    return planned


def test_a_plan_hands_to_megatron_what_amds_merge_gives(plan: Any, tmp_path: Path) -> None:
    found = plan()
    schema = load(shipped()[found.config["framework_version"]])
    theirs = merged(tmp_path / "checkout", "megatron", "pre_trainer.yaml", "tiny.yaml", OVERRIDES)
    differing = {}
    for name, option in schema.options.items():
        ours = found.config["settings"].get(name, option.default)
        value = theirs.get(name, option.default)
        value = option.default if value is None and not option.optional else value
        if name not in SET_BY_PRIMUS and ours != value:
            differing[name] = (ours, value)
    assert differing == {}
    assert found.config["settings"]["bf16"] is True, "the module's preset wins over the model file"


def test_what_only_tunes_is_accepted_with_a_note(plan: Any) -> None:
    notes = plan().notes
    assert "ignored: pp_warmup: it only tunes the speed of AMD's fork" in notes
    assert not [note for note in notes if "patch_zero_bubble" in note], "what asks for nothing needs no note"


def test_without_save_amds_preset_saves_nothing(plan: Any) -> None:
    assert plan().config["settings"].get("save") is None
    assert plan(overrides={**OVERRIDES, "save": "ckpt"}).config["settings"]["save"].endswith("/ckpt")


def test_mock_data_has_as_many_tokens_as_in_amds_primus(plan: Any) -> None:
    settings = plan().config["settings"]
    assert settings["tokenizer_type"] == "NullTokenizer"
    assert settings["vocab_size"] in (131071, 131072)


def test_another_model_is_one_error_that_says_why(plan: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        plan("other.yaml", {**OVERRIDES, "hybrid_attention_ratio": 0.5, "no_such_setting": 1})
    [error] = caught.value.each()
    assert "'model_type: mamba'" in error.what
    assert error.why.startswith("these layers are in AMD's fork alone")


KNOWN = {"context_parallel_size", "softmax_type", "window_size", "window_attn_skip_freq", "enable_primus_turbo",
         "use_turbo_attention", "recompute_method", "recompute_num_layers", "num_distributed_optimizer_instances"}  # fmt: skip
TURBO = {"enable_primus_turbo": True, "use_turbo_attention": True}
SINKS = {"use_sink_attention": True, "sink_sliding_window": 128, "sink_window_even_layers_only": True}


def translated(**settings: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    document, notes = fork_settings.translate(Document(settings, {(): "exp.yaml:7"}), KNOWN)
    return document.data, notes


def test_attention_sinks_are_megatrons_softmax_and_window() -> None:
    windows = {"softmax_type": "learnable", "window_size": "128,0", "window_attn_skip_freq": 2}
    assert translated(**TURBO, **SINKS) == ({**TURBO, **windows}, ())
    assert translated(**{**TURBO, "use_turbo_attention": False}, **SINKS)[0] == {**TURBO, "use_turbo_attention": False}


def test_layers_to_recompute_become_all_layers() -> None:
    found, [note] = translated(recompute_layer_ids="0,3", recompute_method=None)
    assert found == {"recompute_method": "uniform", "recompute_num_layers": 1}
    assert "recompute_layer_ids" in note


def test_a_renamed_setting_keeps_its_value_and_its_place() -> None:
    document, _ = fork_settings.translate(Document({"data_parallel_replicate_degree": 2}, {(): "exp.yaml:7"}), KNOWN)
    assert document.data == {"num_distributed_optimizer_instances": 2}
    assert translated(data_parallel_replicate_degree=1) == ({}, ())


def test_all_that_changes_the_result_is_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        translated(weight_deosc=True, fp4_param=True, pp_warmup=True)
    assert caught.value.what == (
        "exp.yaml:7: Primus cannot do 'weight_deosc: true, fp4_param: true' of AMD's fork of Megatron"
    )


def test_every_row_says_what_becomes_of_the_setting() -> None:
    for name, row in fork_settings.table().items():
        assert ("to" in row) + ("ignored" in row) + ("gone" in row) == 1, name
        assert ("instead" in row) is ("gone" in row), name


def test_the_shipped_presets_ask_for_nothing_unknown() -> None:
    options = load(list(shipped().values())[-1]).options
    from primus_megatron.own_settings import SETTINGS

    known = {*options, *fork_settings.table(), *(own.name for own in SETTINGS)}
    for file in (Path(MEGATRON.presets()) / "released").glob("*.json"):
        data = json.loads(file.read_text())
        assert "AMD-AGI/Primus/tree/" in data["source"]
        assert set(data["modules"]["pre_trainer"]) <= known
        assert data["modules"]["pre_trainer"]["bf16"] is True
