"""Settings become a plan, and wrong ones become errors with a place and a suggestion, without MaxText."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from tests.indexed_files import write_indexed
from tests.maxtext.conftest import MODEL, SETTINGS, needs_maxtext, tiny
from tests.planning import Resolve
from tests.train.published import PublishedExperiments

from primus_core.errors import ConfigError, MachineError, RequestError
from primus_core.requirements import missing
from primus_maxtext.backend import MAXTEXT
from primus_maxtext.contradictions import CONTRADICTIONS
from primus_maxtext.settings import _CHOICES
from primus_maxtext.text import _TOKENIZERS
from primus_train.profiling import ProfiledSteps
from primus_train.testing import BackendConformance


class TestMaxText(BackendConformance):
    backend = MAXTEXT
    settings: ClassVar = SETTINGS
    misspelt = ("learning_rte", "learning_rate")
    frameworks = ("jax", "maxtext", "numpy", "flax", "grain", "orbax")


class TestPublished(PublishedExperiments):
    framework = "MaxText"


def refused(resolve: Resolve, ranks: int = 1, gpus: int = 0, nnodes: int = 1, **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(tiny(**changes), ranks=ranks, gpus=gpus, nnodes=nnodes)
    assert "settings.yaml:" in str(caught.value), "the error names the file and line"
    return f"{caught.value} {caught.value.why} {caught.value.fix}"


TEXT = {"text": "python-stdlib", "vocab_size": 512}
GRAIN = {"dataset_type": "grain", "grain_train_files": "a.array_record", "tokenizer_path": "tokenizer.llama2"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"learning_rte": 1}, "did you mean 'learning_rate'?"),
        ({"steps": "many"}, "'steps' takes a whole number"),
        ({"steps": 0}, "set the number of steps"),
        ({"base_emb_dim": 0}, "must be at least 1"),
        ({"dropout_rate": -0.1}, "must be at least 0"),
        ({"warmup_steps_fraction": 1.5}, "must be at most 1"),
        ({"mlp_activations": ["silu", "liner"]}, "did you mean 'linear'?"),
        ({"scan_layers": 2}, "takes true or false"),
        ({"decoder_block": "lama2"}, "did you mean 'llama2'?"),
        ({"opt_type": "adamv"}, "did you mean 'adamw'?"),
        ({"remat_policy": "minimall"}, "did you mean 'minimal'?"),
        ({"attention": "dot_produkt"}, "did you mean 'dot_product'?"),
        ({"grain_file_type": "arrayrecords"}, "did you mean 'arrayrecord'?"),
        ({"model_name": "llama3-8"}, "did you mean 'llama3-8b'?"),
        ({"model_name": "llama2-7b"}, "'model_name: llama2-7b' has no effect beside 'model'"),
        ({"model": {**MODEL, "rope_theta": 10000}}, "did you mean 'rope_max_timescale'?"),
        ({"bf16": True}, "write dtype=bfloat16"),
        ({"attention": "cudnn_flash_te"}, "needs a GPU"),
        ({"steps": 1e30}, "from 1 to 2147483647"),
        ({"metrics_file": "mine"}, "metrics.jsonl of the run directory"),
        ({"hf_access_token": "hf_abc"}, "export HF_TOKEN"),
        ({"base_config": "mine.yml"}, "put it below `extends:`"),
        ({"metrics_file": "m.txt"}, "step metrics are in metrics.jsonl"),
        ({"per_device_batch_size": 0.5}, "0.5 sequences are not a whole batch"),
        ({"dataset_type": None}, "there is no training data"),
        ({"data": TEXT, "dataset_type": "hf"}, "both set the training data"),
        ({"data": {"text": "python-stdlib"}, "dataset_type": None}, "`data` has no `vocab_size`"),
        ({"data": {"txt": "python-stdlib"}}, "did you mean 'data.text'?"),
        ({"data": {"train_data_path": ["a"], **TEXT}, "dataset_type": None}, "both set the training data"),
        ({"data": {"train_data_path": ["a"]}, "reset_attention_mask": True, "dataset_type": None}, "set data.eod_id"),
        ({"data": {"train_data_path": ["a.bin"], "eod_id": 0}, "dataset_type": None}, "write a"),
        ({"data": {"train_data_path": ["a"], "valid_data_path": ["b"], "split": "9,1"}}, "'data.split' both set"),
        ({"data": {"train_data_path": ["a"], "split": "0,1"}}, "'data.split' is '0,1'"),
        ({"data": {"input": "a.jsonl"}}, "`data` has no `tokenizer_model`"),
        ({"data": {"input": "a.jsonl", "document_chars": 9}}, "'data.document_chars' does not go with 'data.input'"),
        ({"data": {"split": "9,1", **TEXT}}, "'data.split' does not go with 'data.text'"),
        ({"data": {"train_data_path": [3, "a", 1, 7], "eod_id": 0}, "dataset_type": None}, "where a path should be"),
        ({"data": {"valid_data_path": ["a"]}}, "there is no 'data.train_data_path'"),
        (
            {"data": {"train_data_path": ["a"], "eod_id": 0}, "dataset_type": None, "eval_interval": 2},
            "set data.valid_data_path",
        ),
        (
            {"data": {"input": "a.jsonl", "tokenizer_model": "t.json"}, "dataset_type": None, "eval_interval": 2},
            "  set data.split=98,2: shares to train and to validate on",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place_and_a_fix(
    resolve: Resolve, changes: dict[str, Any], expected: str
) -> None:
    assert expected in refused(resolve, **changes)


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "base_moe_mlp_dim": 128, "decoder_block": "mixtral"}
CYCLE = {"decoder_block": "olmo3", "inhomogeneous_layer_cycle_interval": 2}
PIPELINE = {"ici_pipeline_parallelism": 2, "ici_fsdp_parallelism": 1}
REFUSED: list[tuple[str, int, int, dict[str, Any], str]] = [
    ("gradient_accumulation_steps", 0, 1, {"quantization": "fp8", "gradient_accumulation_steps": 2}, "'quantization"),
    ("max_num_checkpoints_to_keep", 0, 1, {"enable_checkpointing": True, "max_num_checkpoints_to_keep": 0}, "at once"),
    ("max_segments_per_seq", 8, 8, {"attention": "cudnn_flash_te"}, "packing=false"),
    (
        "wsd_decay_steps_fraction",
        *(0, 1, {"lr_schedule_type": "wsd", "warmup_steps_fraction": 0.6, "wsd_decay_steps_fraction": 0.5}),
        "'warmup_steps_fraction: 0.6'",
    ),
    ("eval_interval", 0, 1, {**GRAIN, "eval_interval": 2}, "set grain_eval_files"),
    ("eval_interval", 0, 1, {"dataset_type": "hf", "hf_path": "json", "eval_interval": 2}, "hf_eval_files"),
    ("eval_steps", 0, 1, {"eval_interval": 2}, "eval_steps=10"),
    ("dataset_type", 0, 1, {"dataset_type": "grain"}, "set grain_train_files"),
    ("hf_path", 0, 1, {"dataset_type": "hf"}, "hf_path=json"),
    ("grain_worker_count", 0, 1, {"dataset_type": "hf", "hf_path": "json", "grain_worker_count": 2}, "the same data"),
    ("tokenizer_path", 0, 1, {"dataset_type": "hf", "hf_path": "json"}, "reads text"),
    ("tokenizer_path", 0, 1, {**GRAIN, "tokenizer_type": "tiktoken"}, "rename it"),
    ("base_num_query_heads", 0, 1, {"base_num_kv_heads": 3}, "take a multiple of 3"),
    ("head_dim", 0, 1, {"head_dim": 15}, "take an even number"),
    ("attention", 8, 8, {"model": None, "model_name": "deepseek4-tiny"}, "attention=dot_product"),
    ("scan_layers", 0, 1, {"model": None, "model_name": "qwen3-vl-2b"}, "scan_layers=false"),
    ("adam_b1", 0, 1, {"adam_b1": 1}, "below 1"),
    ("adam_b2", 0, 1, {"adam_b2": 2}, "below 1"),
    ("num_experts_per_tok", 0, 1, {**EXPERTS, "num_experts_per_tok": 5}, "take 4 at most"),
    ("base_num_kv_heads", 0, 1, {"attention_type": "mla"}, "which is 4"),
    ("base_mlp_dim", 0, 1, {**EXPERTS, "base_moe_mlp_dim": 64}, "'base_moe_mlp_dim' is 64"),
    ("opt_type", 0, 1, {"opt_type": "muon", "decoder_block": "gemma"}, "opt_type=adamw"),
    ("load_full_state_path", 0, 1, {"load_parameters_path": "/a", "load_full_state_path": "/b"}, "keep one"),
    ("load_full_state_path", 0, 1, {"load_full_state_path": "/b"}, "enable_checkpointing=true"),
    ("sliding_window_size", 0, 1, {"attention_type": "local_sliding"}, "so far back"),
    ("base_num_decoder_layers", 0, 1, {**CYCLE, "base_num_decoder_layers": 3}, "take a multiple of 2"),
    ("inhomogeneous_layer_cycle_interval", 0, 1, {"inhomogeneous_layer_cycle_interval": 2}, "are all equal"),
    ("quantization", 0, 1, {"quantization": "fp4"}, "use_qwix_quantization=true"),
    ("chunk_attn_window_size", 0, 1, {"attention_type": "chunk"}, "so many tokens"),
    ("num_vocab_tiling", 0, 1, {"num_vocab_tiling": 7}, "take a divisor"),
    ("num_pipeline_microbatches", 0, 2, {**PIPELINE, "num_pipeline_microbatches": 3}, "multiple of the stages"),
    ("per_device_batch_size", 0, 2, {**PIPELINE, "per_device_batch_size": 0.5}, "equal microbatches"),
]


@pytest.mark.parametrize(("name", "gpus", "ranks", "changes", "expected"), REFUSED)
def test_settings_that_contradict_each_other_are_refused_before_the_start(
    resolve: Resolve, name: str, gpus: int, ranks: int, changes: dict[str, Any], expected: str
) -> None:
    said = refused(resolve, ranks=ranks, gpus=gpus, **changes)
    assert f"'{name}' is " in said
    assert expected in said


def test_every_row_of_contradictions_has_a_case_here() -> None:
    assert sorted(row.name for row in CONTRADICTIONS) == sorted(name for name, *_ in REFUSED)


LAYOUTS: list[tuple[int, int, int, dict[str, Any], str]] = [
    (0, 1, 3, {"ici_fsdp_parallelism": 2}, "ici_fsdp_parallelism=2, but there are 3 devices"),
    (0, 1, 4, {"ici_fsdp_parallelism": -1, "ici_data_parallelism": -1}, "only one axis of a mesh can be -1"),
    (0, 1, 1, {"ici_fsdp_parallelism": 0}, "-1: the rest"),
    (0, 1, 1, {"ici_fsdp_parallelism": 2, "ici_tensor_parallelism": 2}, "set ici_tensor_parallelism to 1, and let"),
    (0, 1, 4, {"ici_tensor_parallelism": 4, "ici_fsdp_parallelism": 1}, "'base_num_kv_heads' is 2"),
    (0, 1, 3, {"ici_fsdp_parallelism": -1}, "'base_emb_dim' is 64, divided by fsdp 3"),
    (0, 1, 2, {"ici_tensor_parallelism": 2, "base_mlp_dim": 63}, "'base_mlp_dim' is 63"),
    (0, 1, 2, {"ici_tensor_parallelism": 2, "vocab_size": 511}, "'vocab_size' is 511"),
    (0, 1, 2, {**EXPERTS, "num_experts": 5, "ici_expert_parallelism": 2}, "'num_experts' is 5"),
    (0, 1, 2, {"ici_context_parallelism": 2, "max_target_length": 65}, "'max_target_length' is 65"),
    (0, 1, 2, {**PIPELINE, "base_num_decoder_layers": 3}, "'base_num_decoder_layers' is 3"),
    (0, 1, 4, {"dcn_data_parallelism": 2}, "on CPUs, the devices of all nodes are one slice"),
    (8, 1, 8, {"dcn_data_parallelism": 2}, "there is one node"),
    (8, 2, 8, {"dcn_data_parallelism": 3}, "dcn_data_parallelism=3, but there are 2 nodes"),
    (8, 1, 8, {"per_device_batch_size": 0.3}, "2.4 sequences are not a whole batch"),
]


@pytest.mark.parametrize(("gpus", "nnodes", "ranks", "changes", "expected"), LAYOUTS)
def test_a_mesh_that_does_not_fit_is_refused_with_the_numbers(
    resolve: Resolve, gpus: int, nnodes: int, ranks: int, changes: dict[str, Any], expected: str
) -> None:
    assert expected in refused(resolve, ranks=ranks, gpus=gpus, nnodes=nnodes, **changes)


@pytest.mark.parametrize(
    ("ranks", "heads", "groups", "tensor", "proposed"),
    [
        (8, 8, 4, 3, "1, 2 or 4"),
        (8, 8, 4, 8, "1, 2 or 4"),
        (8, 6, 6, 3, "1 or 2; for 3 or 6, start another number of devices"),
    ],
)
def test_a_tensor_parallelism_is_proposed_that_heads_and_devices_allow(
    resolve: Resolve, ranks: int, heads: int, groups: int, tensor: int, proposed: str
) -> None:
    changes = {"base_num_query_heads": heads, "base_num_kv_heads": groups, "base_mlp_dim": 192, "vocab_size": 768}
    model = {**MODEL, **changes}
    said = refused(resolve, ranks=ranks, model=model, ici_tensor_parallelism=tensor)
    assert f"set ici_tensor_parallelism to {proposed}" in said
    for size in map(int, re.findall(r"\d+", proposed.partition(";")[0])):
        resolve(tiny(model=model, ici_tensor_parallelism=size), ranks=ranks)


def test_one_axis_takes_the_devices_that_the_others_leave(resolve: Resolve) -> None:
    plan = resolve(tiny(ici_tensor_parallelism=2), ranks=4)
    assert plan.layout == {"fsdp": 2, "tensor": 2}
    assert plan.tokens_per_step == 4 * 4 * 64
    assert plan.config["data_parallel"] == 2
    part = resolve(tiny(per_device_batch_size=0.5), ranks=4)
    assert part.tokens_per_step == 2 * 64


def test_two_nodes_of_gpus_are_joined_by_the_axes_between_slices(resolve: Resolve) -> None:
    plan = resolve(tiny(ici_fsdp_parallelism=8, dcn_data_parallelism=-1), gpus=8, ranks=8, nnodes=2)
    assert plan.layout == {"data": 2, "fsdp": 8}
    assert plan.config["data_parallel"] == 16


def test_on_gpus_nothing_of_the_cpu_is_set(resolve: Resolve) -> None:
    plan = resolve(tiny(attention="cudnn_flash_te", max_segments_per_seq=32), gpus=8, ranks=8)
    assert plan.config["device"] == "gpu"
    assert not plan.environment
    assert "attention" in plan.config["settings"]
    assert "transformer_engine" in {need.name for need in plan.requires}
    assert "transformer_engine" not in {need.name for need in resolve(tiny(), gpus=8, ranks=8).requires}


def test_a_cpu_is_as_many_devices_as_are_asked_for(resolve: Resolve) -> None:
    assert {v.name: v.value for v in resolve().environment} == {"JAX_PLATFORMS": "cpu"}
    flags = {v.name: v.value for v in resolve(ranks=4).environment}["XLA_FLAGS"]
    assert flags == "--xla_force_host_platform_device_count=4"
    assert resolve().config["settings"]["attention"] == "dot_product"
    context = resolve(tiny(ici_context_parallelism=2), ranks=2).config["settings"]
    assert context["context_parallel_load_balance"] is False, "Transformer Engine does it"


def test_an_interval_of_checkpoints_without_any_is_noted(resolve: Resolve) -> None:
    assert "no checkpoint is saved: enable_checkpointing is false" in resolve(tiny(checkpoint_period=5)).notes


def test_what_the_experiment_says_wins_over_a_named_model(resolve: Resolve) -> None:
    plan = resolve(tiny(model={"model_name": "llama3.1-8b", "base_emb_dim": 64}, base_num_decoder_layers=2))
    model = plan.config["model"]
    assert (model["base_emb_dim"], model["base_num_decoder_layers"]) == (64, 2)
    assert (model["base_mlp_dim"], model["vocab_size"]) == (14336, 128256), "the rest is the named model's"
    assert plan.config["settings"]["override_model_config"] is True
    assert plan.config["settings"]["model_name"] == "llama3.1-8b"


def test_a_setting_from_a_variable_is_refused_with_its_name(resolve: Resolve) -> None:
    with pytest.raises(RequestError, match="M_STEPS is set") as caught:
        resolve(environ={"M_STEPS": "7"})
    assert caught.value.fix == "unset M_STEPS, and set 'steps' in the experiment or after it"
    with pytest.raises(RequestError) as caught:
        resolve(environ={"M_HF_ACCESS_TOKEN": "hf_abc"})
    assert "hf_abc" not in str(caught.value)
    assert resolve(environ={"M_Y_OWN": "7"})


def test_the_run_directory_is_where_maxtext_writes(resolve: Resolve, tmp_path: Path) -> None:
    settings = resolve(environ={"PRIMUS_CACHE": str(tmp_path / "cache")}).config["settings"]
    assert os.path.join(settings["base_output_directory"], settings["run_name"]) == str(tmp_path / "run")
    assert settings["jax_cache_dir"] == str(tmp_path / "cache/jax")


def test_steps_and_their_schedule_fill_each_other_in(resolve: Resolve) -> None:
    settings = resolve(tiny(steps=-1, learning_rate_schedule_steps=9)).config["settings"]
    assert (settings["steps"], settings["learning_rate_schedule_steps"]) == (9, 9)


def test_text_is_prepared_by_a_step_and_read_as_tokens(resolve: Resolve, tmp_path: Path) -> None:
    plan = resolve(tiny(data=TEXT, dataset_type=None, eval_interval=2))
    [step] = plan.prepare
    assert "primus_data.training.prepare" in step.argv
    settings = plan.config["settings"]
    assert (settings["vocab_size"], settings["mmap_eod_id"]) == (512, 511)
    assert settings["grain_train_files"] == f"{tmp_path}/run/data/train"
    assert (settings["data_shuffle_seed"], settings["reset_attention_mask"]) == (1234, False), "Megatron's defaults"
    assert settings["grain_eval_files"].endswith("/data/validation")


def test_indexed_files_are_blended_by_their_weights(resolve: Resolve, tmp_path: Path) -> None:
    data = {"train_data_path": [0.7, "web", 0.3, "books"], "eod_id": 0}
    plan = resolve(tiny(data=data, dataset_type=None))
    here = str(tmp_path)
    assert plan.config["samples"]["train"]["blend"] == [[0.7, f"{here}/web"], [0.3, f"{here}/books"]]
    files = [need.name for need in plan.requires if need.kind == "file"]
    assert files == [f"{here}/{name}.{suffix}" for name in ("web", "books") for suffix in ("bin", "idx")]


@pytest.mark.parametrize("weight", [0, -0.5])
def test_a_weight_that_is_no_share_is_refused(resolve: Resolve, weight: float) -> None:
    data = {"train_data_path": [weight, "web", 1, "books"], "eod_id": 0}
    with pytest.raises(ConfigError, match=f"gives 'web' the weight {weight}"):
        resolve(tiny(data=data, dataset_type=None))


@pytest.mark.parametrize(
    ("tokens", "cut_at", "expected"),
    [
        ([1] * 100, 10, "it was cut off"),
        ([1, 600], 0, "it has the token 600, but the vocabulary of the model has 512 (0 to 511)"),
    ],
)
def test_indexed_files_that_cannot_be_trained_on_are_refused(
    resolve: Resolve, tmp_path: Path, tokens: list[int], cut_at: int, expected: str
) -> None:
    write_indexed(tmp_path / "corpus", [tokens])
    if cut_at:
        os.truncate(tmp_path / "corpus.bin", cut_at)
    data = {"train_data_path": ["corpus"], "eod_id": 0}
    with pytest.raises(MachineError, match=r"settings\.yaml:\d+: the data '.*corpus' cannot be trained on") as caught:
        resolve(tiny(data=data, dataset_type=None))
    assert expected in caught.value.why


def test_files_of_maxtexts_own_pipelines_must_be_there(resolve: Resolve, tmp_path: Path) -> None:
    own = {**GRAIN, "tokenizer_path": "mine.model", "grain_train_files": "a.array_record,0.7;b.array_record,0.3"}
    needs = {need.name for need in resolve(tiny(**own)).requires if need.kind == "file"}
    assert needs == {str(tmp_path / name) for name in ("a.array_record", "b.array_record", "mine.model")}
    assert not [need for need in resolve(tiny(**GRAIN)).requires if need.name.endswith("tokenizer.llama2")]
    plan = resolve(tiny(**GRAIN | {"grain_train_files": "part-*"}))
    assert [error.what for error in missing(plan.requires, {})] == [f"file '{tmp_path}/part-*' not found"]
    (tmp_path / "part-1").write_text("x")
    assert not missing(plan.requires, {})
    assert "datasets" in {
        need.name for need in resolve(tiny(**GRAIN, hf_path="json").replace('"grain"', '"hf"')).requires
    }


def test_nothing_is_read_of_what_another_pipeline_would_read_and_null_is_an_empty_text(resolve: Resolve) -> None:
    files = {"grain_train_files": "/nowhere/*", "hf_train_files": "/nowhere"}
    assert not [need for need in resolve(tiny(**files)).requires if need.name.startswith("/nowhere")]
    text = tiny(**files, data={"text": "python-stdlib", "vocab_size": 512}, vocab_size=512).replace(
        '"/nowhere/*"', "null"
    )
    assert resolve(text.replace('"/nowhere"', "null"))


def test_a_checkpoint_of_ones_own_to_start_from_must_be_there(resolve: Resolve, tmp_path: Path) -> None:
    (tmp_path / "earlier/items").mkdir(parents=True)
    plan = resolve(tiny(load_parameters_path="earlier/items"))
    needed = {row.name: row for row in plan.requires}[str(tmp_path / "earlier/items/_METADATA")]
    fix = "set load_parameters_path to the folder `items` of a checkpoint of MaxText"
    assert (needed.kind, needed.fix) == ("file", fix)
    elsewhere = resolve(tiny(load_parameters_path="gs://bucket/items"))
    assert not [row for row in elsewhere.requires if "bucket" in row.name]


def test_what_primus_says_itself_has_no_effect_and_is_told(resolve: Resolve) -> None:
    plan = resolve(tiny(run_name="mine", base_output_directory="./out", hf_access_token='${HF_TOKEN:""}'))
    assert "ignored, because Primus sets it itself: run_name, base_output_directory, hf_access_token" in plan.notes
    assert plan.config["settings"]["run_name"] == "run"


def test_a_file_of_maxtexts_own_is_an_experiment() -> None:
    own = {"base_config": "base.yml", "run_name": "my run", "hardware": "gpu", "model_name": "llama2-7b", "steps": 5}
    adopted = MAXTEXT.adopt(own)
    assert adopted
    assert adopted["exp_name"] == "my_run"
    module = adopted["modules"]["pre_trainer"]
    assert module == {"framework": "maxtext", "overrides": {"model_name": "llama2-7b", "steps": 5}}
    assert MAXTEXT.adopt({"model": {"dim": 1}, "training": {"steps": 5}}) is None


def test_nodes_started_by_hand_are_told_to_share_a_run_directory(resolve: Resolve) -> None:
    by_hand = {"environ": {"NNODES": "2"}, "nnodes": 2}
    told = "all nodes save to one run directory: start each node with the same PRIMUS_RUN_DIR"
    assert told in resolve(tiny(enable_checkpointing=True), **by_hand).notes
    assert told not in resolve(tiny(), **by_hand).notes
    assert told not in resolve(tiny(enable_checkpointing=True)).notes


@needs_maxtext
def test_what_is_said_of_maxtexts_code_is_so() -> None:
    from importlib.util import find_spec

    found = find_spec("maxtext")
    assert found
    assert found.submodule_search_locations
    home = Path(found.submodule_search_locations[0])
    assert {path.name for path in (home / "assets/tokenizers").iterdir() if path.is_file()} == set(_TOKENIZERS)
    code = (home / "layers/nnx_decoders.py").read_text()
    code = code[code.index("def get_remat_policy") :]
    branch = r'remat_policy (?:==|!=|in) (?:\{([^}]*)\}|"(\w+)")'
    named = " ".join(f"{several} {one}" for several, one in re.findall(branch, code))
    assert set(re.findall(r"\w+", named)) == set(_CHOICES["remat_policy"])


def test_profiled_steps_become_its_settings_for_the_profiler_of_jax(resolve: Resolve) -> None:
    settings = MAXTEXT.profiling(ProfiledSteps(10, 13), "/run")
    assert settings == {
        "profiler": "xplane",
        "skip_first_n_steps_for_profiler": 9,
        "profiler_steps": 4,
        "upload_all_profiler_results": True,
    }
    resolved = resolve(tiny(**settings)).config["settings"]
    assert settings.items() <= resolved.items()
