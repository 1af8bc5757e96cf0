"""Settings become a plan, and wrong ones become errors with a place and a suggestion, without Megatron."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from tests.indexed_files import write_indexed
from tests.megatron.conftest import MODEL, SETTINGS, tiny
from tests.planning import Resolve, changed, not_loadable
from tests.train.published import PublishedExperiments

from primus_core.errors import ConfigError, MachineError
from primus_core.requirements import missing
from primus_megatron.backend import MEGATRON
from primus_megatron.checkpoints import CheckpointWatch, newest_whole
from primus_megatron.installation import Installation
from primus_megatron.requirements import modules
from primus_megatron.schema import load, shipped
from primus_megatron.settings import Settings
from primus_train import profiling
from primus_train.backend import BackendPlan
from primus_train.profiling import ProfiledSteps
from primus_train.testing import BackendConformance


class TestMegatron(BackendConformance):
    backend = MEGATRON
    settings: ClassVar = {"model": MODEL, **SETTINGS}
    misspelt = ("train_itres", "train_iters")
    frameworks = ("torch", "megatron", "numpy")


class TestPublished(PublishedExperiments):
    framework = "Megatron"


def refused(resolve: Resolve, ranks: int = 1, gpus: int = 0, **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(tiny(**changes), ranks=ranks, gpus=gpus)
    assert "settings.yaml" in str(caught.value), "the error names the file"
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tensor_parallel_size": 2}, "did you mean 'tensor_model_parallel_size'?"),
        ({"train_iters": "many"}, "'train_iters' takes a whole number"),
        ({"train_iters": 0}, "must be at least 1"),
        ({"train_samples": 100}, "'train_samples' counts samples, and 'train_iters' iterations"),
        ({"swiglu": 2}, "takes true or false"),
        ({"lr_decay_style": "cosin"}, "did you mean 'cosine'?"),
        ({"attention_backend": "flesh"}, "did you mean 'flash'?"),
        ({"tokenizer_type": "GPT2"}, "did you mean 'GPT2BPETokenizer'?"),
        ({"lr": None}, "'lr' is not set"),
        ({"vocab_size": None}, "'vocab_size' is not set"),
        ({"world_size": 2}, "cannot be set in an experiment"),
        ({"mock_data": None}, "there is no training data"),
        ({"train_data_path": "a"}, "keep one: mock_data=false, or train_data_path=null"),
        (
            {"train_data_path": "a", "mock_data": None, "data": {"text": "python-stdlib", "vocab_size": 512}},
            "to train on train_data_path: data.text=null data.vocab_size=null",
        ),
        (
            {"train_data_path": "a", "split": "9,1", "data": {"text": "python-stdlib", "vocab_size": 512}},
            "to train on data.text: train_data_path=null mock_data=null split=null vocab_size=null",
        ),
        ({"mock_data": None, "train_data_path": "3 web.bin 1 books"}, "write web"),
        ({"mock_data": None, "train_data_path": "corpus.jsonl"}, "train_data_path=null data.input="),
        ({"optimizer": {"lr": 1}}, "did you mean 'lr'?"),
        ({"encoder_num_layers": 2}, "set num_layers instead"),
        ({"recompute_modules": 3, "recompute_granularity": "ful"}, "did you mean 'full'?"),
        ({"moe_router_load_balancing_type": "sinkhorm"}, "did you mean 'sinkhorn'?"),
        ({"use_turbo_attention": True}, "needs enable_primus_turbo"),
        ({"gradient_accumulation_fusion": True}, "needs a GPU"),
        ({"fp8": "hybrid"}, "needs Transformer Engine"),
        ({"experimental_attention_variant": "gated_delta_net"}, "needs Transformer Engine"),
        ({"data": {"text": "python-stdlib", "vocab_size": 512}, "mock_data": None}, "both set the training data"),
        ({"data": {"text": "python-stdlib"}, "mock_data": None}, "`data` has no `vocab_size`"),
        ({"data": {"txt": "python-stdlib"}}, "did you mean 'data.text'?"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place_and_a_fix(
    resolve: Resolve, changes: dict[str, Any], expected: str
) -> None:
    assert expected in refused(resolve, **changes)


@pytest.mark.parametrize(
    ("ranks", "changes", "expected"),
    [
        (3, {"tensor_model_parallel_size": 2}, "= 2 does not divide 3 ranks"),
        (1, {"pipeline_model_parallel_size": 2}, "= 2 does not divide 1 rank"),
        (3, {"tensor_model_parallel_size": 3}, "tensor_model_parallel_size 3 does not divide num_attention_heads 4"),
        (3, {"pipeline_model_parallel_size": 3, "num_layers": 2}, "does not divide num_layers 2"),
        (2, {"pipeline_model_parallel_size": 2, "num_layers_per_virtual_pipeline_stage": 3}, "not a multiple of 6"),
        (1, {"num_layers_per_virtual_pipeline_stage": 1}, "in a pipeline of one rank"),
        (3, {}, "global_batch_size 8 is not a multiple of 6"),
        (2, {"expert_model_parallel_size": 2}, "a model without experts"),
        (2, {"expert_model_parallel_size": 2, "num_experts": 3}, "does not divide num_experts 3"),
        (2, {"expert_model_parallel_size": 2, "num_experts": 4, "tensor_model_parallel_size": 2}, "= 4 does not"),
        (2, {"num_experts": 4, "tensor_model_parallel_size": 2}, "with experts, without sequence_parallel"),
        (1, {"num_experts": 4, "moe_router_topk": 5}, "moe_router_topk 5 exceeds num_experts 4"),
        (1, {"num_experts": 4, "moe_router_num_groups": 3}, "moe_router_num_groups 3 does not divide num_experts 4"),
        (2, {"context_parallel_size": 2}, "'context_parallel_size' needs Transformer Engine"),
        (2, {"tensor_model_parallel_size": 2, "sequence_parallel": True, "seq_length": 33}, "2 equal pieces"),
        (1, {"max_position_embeddings": 16}, "seq_length 32 exceeds max_position_embeddings 16"),
        (1, {"model": {**MODEL, "num_query_groups": 3}}, "does not divide num_attention_heads 4"),
        (1, {"model": {**MODEL, "hidden_size": 66}}, "does not divide hidden_size 66"),
    ],
)
def test_numbers_that_do_not_fit_are_refused_with_the_numbers(
    resolve: Resolve, ranks: int, changes: dict[str, Any], expected: str
) -> None:
    assert expected in refused(resolve, ranks=ranks, **changes)


@pytest.mark.parametrize(
    ("ranks", "heads", "groups", "tensor", "proposed"),
    [
        (8, 8, 4, 3, "1, 2, 4 or 8"),
        (3, 8, 4, 3, "1; for 2, 4 or 8, start another number of ranks"),
        (8, 6, 6, 3, "1 or 2; for 3 or 6, start another number of ranks"),
        (12, 12, 3, 4, "1, 3, 6 or 12; for"),
    ],
)
def test_a_tensor_parallelism_is_proposed_that_model_and_ranks_allow(
    resolve: Resolve, ranks: int, heads: int, groups: int, tensor: int, proposed: str
) -> None:
    model = {**MODEL, "hidden_size": 96, "num_attention_heads": heads, "num_query_groups": groups}
    changes: dict[str, Any] = {"model": model, "global_batch_size": 2 * ranks}
    said = refused(resolve, ranks=ranks, **changes, tensor_model_parallel_size=tensor)
    proposed = proposed.removesuffix("; for")
    assert f"set tensor_model_parallel_size to {proposed}" in said
    for size in map(int, re.findall(r"\d+", proposed.partition(";")[0])):
        resolve(tiny(**changes, tensor_model_parallel_size=size), ranks=ranks)


@pytest.mark.parametrize(
    ("ranks", "sizes", "proposed"),
    [
        (1, (2, 2), "set tensor_model_parallel_size and pipeline_model_parallel_size to 1, or start another number"),
        (1, (1, 2), "set pipeline_model_parallel_size to 1, or start another number"),
        (2, (2, 4), "set tensor_model_parallel_size to 1 or 2, and make their product a divisor of 2, or start"),
        (3, (1, 2), "make their product a divisor of 3, or start another number"),
    ],
)
def test_sizes_are_proposed_that_divide_the_ranks(
    resolve: Resolve, ranks: int, sizes: tuple[int, int], proposed: str
) -> None:
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
    said = refused(resolve, ranks=ranks, global_batch_size=12, **dict(zip(names, sizes, strict=True)))
    assert f"fix: {proposed}" in said


def test_where_no_size_makes_the_batch_another_number_of_ranks_is_proposed(resolve: Resolve) -> None:
    said = refused(resolve, ranks=3, tensor_model_parallel_size=3)
    assert "set tensor_model_parallel_size to 1, 2 or 4, and start another number of ranks" in said


@pytest.mark.parametrize(("ranks", "heads"), [(8, 4), (6, 4), (8, 6)])
def test_another_length_of_sequences_is_proposed_only_for_a_size_that_is_possible(
    resolve: Resolve, ranks: int, heads: int
) -> None:
    layout = {"tensor_model_parallel_size": 3, "sequence_parallel": True, "global_batch_size": 24}
    model = {**MODEL, "hidden_size": 96, "num_query_groups": heads}
    said = refused(resolve, ranks=ranks, **layout, model={**model, "num_attention_heads": heads})
    assert "seq_length" not in said
    possible = {**model, "num_attention_heads": 6, "num_query_groups": 6}
    assert "take a multiple of 3" in refused(resolve, ranks=6, **layout, model=possible)


def test_the_overrides_that_people_write_are_all_known(resolve: Resolve, tmp_path: Path) -> None:
    """Every name in the experiment files that the existing system documents."""
    given = {
        "max_position_embeddings": 32, "min_lr": 0.0, "lr_warmup_iters": 2, "lr_decay_iters": None,
        "weight_decay": 0.1, "adam_beta1": 0.9, "adam_beta2": 0.95, "clip_grad": 1.0, "eod_mask_loss": True,
        "init_method_std": 0.008, "norm_epsilon": 1e-6, "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2, "expert_model_parallel_size": 1, "overlap_grad_reduce": True,
        "overlap_param_gather": True, "gradient_accumulation_fusion": False, "use_distributed_optimizer": True,
        "mock_data": False, "train_data_path": "corpus", "data_cache_path": "cache", "finetune": False,
        "auto_continue_train": False, "load": None, "save": "kept", "save_interval": 20000, "no_load_optim": False,
        "no_load_rng": False, "no_save_optim": False, "no_save_rng": False, "disable_last_saving": True,
        "ckpt_format": "torch", "enable_primus_turbo": True, "use_turbo_attention": True,
        "use_turbo_grouped_mlp": False, "cross_entropy_fusion_impl": "te", "cross_entropy_loss_fusion": False,
        "bf16": True, "fp16": False, "eval_interval": 2000, "wandb_project": "mine", "disable_wandb": True,
        "disable_tensorboard": True, "stderr_sink_level": "DEBUG", "log_avg_skip_iterations": 2,
        "log_avg_reset_interval": 50, "tokenizer_type": "NullTokenizer",
    }  # fmt: skip
    plan = resolve(tiny(**given), ranks=8, gpus=8)
    settings = plan.config["settings"]
    assert settings["layernorm_epsilon"] == 1e-6
    assert settings["train_data_path"] == [str(tmp_path / "corpus")]
    assert settings["save"] == str(tmp_path / "kept")
    assert not {"norm_epsilon", "enable_primus_turbo", "wandb_project", "stderr_sink_level"} & set(settings)
    assert {need.name for need in plan.requires} >= {"primus_turbo", str(tmp_path / "corpus.idx")}
    assert "stderr_sink_level, log_avg_skip_iterations, log_avg_reset_interval" in " ".join(plan.notes)
    assert (plan.config["data_parallel"], plan.metrics_rank) == (2, 4)


def test_a_blend_keeps_its_weights(resolve: Resolve, tmp_path: Path) -> None:
    plan = resolve(tiny(mock_data=None, tokenizer_type="NullTokenizer", train_data_path="0.7 web 0.3 books"))
    assert plan.config["settings"]["train_data_path"] == ["0.7", str(tmp_path / "web"), "0.3", str(tmp_path / "books")]
    files = [need.name for need in plan.requires if need.kind == "file"]
    assert files == [str(tmp_path / f"{name}.{suffix}") for name in ("web", "books") for suffix in ("bin", "idx")]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mock_data": None, "train_data_path": "web"}, "there is no valid_data_path"),
        ({"split": "100,0,0"}, "split 100,0,0 leaves no data for it"),
        ({"mock_data": None, "train_data_path": "web", "valid_data_path": "kept"}, ""),
        ({}, ""),
    ],
)
def test_nothing_is_evaluated_where_there_is_nothing_to_evaluate_on(
    resolve: Resolve, changes: dict[str, Any], why: str
) -> None:
    plan = resolve(tiny(**{"tokenizer_type": "NullTokenizer", "eval_iters": 10, **changes}))
    assert plan.config["settings"]["eval_iters"] == (0 if why else 10)
    assert (f"no evaluation: {why}" in plan.notes) == bool(why)


def test_checkpoints_are_in_the_run_directory_unless_said_otherwise(resolve: Resolve, tmp_path: Path) -> None:
    assert "save" not in resolve().config["settings"]
    assert resolve(tiny(save_interval=2)).config["settings"]["save"] == str(tmp_path / "run/checkpoints")
    assert resolve(tiny(save="there")).config["settings"]["save_interval"] == 4


def test_tensorboard_and_wandb_are_in_the_run_directory(resolve: Resolve, tmp_path: Path) -> None:
    plan = resolve(tiny(disable_tensorboard=False, wandb_project="mine"))
    settings = plan.config["settings"]
    assert settings["tensorboard_dir"] == str(tmp_path / "run/tensorboard")
    assert (settings["wandb_exp_name"], settings["wandb_save_dir"]) == ("run", str(tmp_path / "run/wandb"))
    assert {"wandb", "tensorboard"} <= {need.name for need in plan.requires}
    [login] = [need for need in plan.requires if need.kind == "login"]
    assert "export WANDB_API_KEY=..., or WANDB_MODE=offline" in login.fix
    offline = resolve(tiny(wandb_project="mine"), environ={"WANDB_MODE": "offline"})
    assert offline.config["settings"]["tensorboard_dir"] == str(tmp_path / "run/tensorboard")
    assert "TensorBoard is enabled, because Weights & Biases needs it" in offline.notes
    assert "WANDB" not in " ".join(offline.notes)


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"disable_tensorboard": False}, ", or set disable_tensorboard: true"),
        ({"tensorboard_dir": "there", "disable_tensorboard": True}, ", or set tensorboard_dir: null"),
        (
            {"tensorboard_dir": "there", "disable_tensorboard": False},
            ", or set tensorboard_dir: null and disable_tensorboard: true",
        ),
        ({"wandb_project": "mine"}, ", which Weights & Biases needs; or set disable_wandb: true"),
        (
            {"wandb_project": "mine", "disable_tensorboard": False},
            ", which Weights & Biases needs; or set disable_wandb: true and disable_tensorboard: true",
        ),
        (
            {"profile": True, "use_pytorch_profiler": True, "disable_tensorboard": False},
            ", which writes the trace; or set profile: false and disable_tensorboard: true",
        ),
    ],
)
def test_without_tensorboard_it_is_said_what_trains_without_it(
    resolve: Resolve, changes: dict[str, Any], fix: str
) -> None:
    [need] = [need for need in resolve(tiny(**changes)).requires if need.name == "tensorboard"]
    assert need.fix == f"pip install tensorboard{fix}"


def test_without_tensorboard_that_profile_needs_nothing_else_is_proposed() -> None:
    asked = profiling.settings("megatron", MEGATRON.profiling, ProfiledSteps(3, 4), "/run")
    settings = Settings(asked, load(list(shipped().values())[-1]))
    [need] = [need for need in modules(settings, Installation("", known=False)) if need.name == "tensorboard"]
    assert need.fix == "pip install tensorboard, which writes the trace; or leave out --profile"


def test_a_checkpoint_of_another_model_or_layout_is_not_continued_by_itself(resolve: Resolve, tmp_path: Path) -> None:
    run = tmp_path / "earlier"
    folder = run / "checkpoints/iter_0000002"
    folder.mkdir(parents=True)
    (run / "config").mkdir()
    (folder / "x.distcp").write_text("x")
    (folder / "primus_sizes.json").write_text('{"x.distcp": 1}')

    def plan(**changes: object) -> BackendPlan:
        def previous(pattern: str) -> tuple[str, ...]:
            return tuple(map(str, run.glob(pattern)))

        settings = {"save_interval": 2, "use_distributed_optimizer": True, **changes}
        return resolve(tiny(**settings), ranks=2, previous=previous, run=tmp_path / "here")

    def differs(**changes: object) -> list[str]:
        return changed(run, plan(**changes), tmp_path / "here")

    then = resolve(tiny(save_interval=2, use_distributed_optimizer=True), ranks=2, run=run).config
    (run / "config/backend_config.json").write_text(json.dumps(then))
    assert "continues from iteration 2 of earlier" in plan().notes
    assert plan().continues == str(run)
    assert differs() == []
    with pytest.raises(
        ConfigError, match="checkpoint of iteration 2 of earlier is not before iteration 2, where training"
    ):
        plan(train_iters=2)
    weights = resolve(
        tiny(save_interval=2), previous=lambda pattern: tuple(map(str, run.glob(pattern))), weights_only=True
    )
    taken = {"load": str(run / "checkpoints"), "ckpt_step": 2, "finetune": True, "no_load_optim": True}
    assert taken.items() <= weights.config["settings"].items()
    assert (weights.continues, weights.starts_from) == ("", str(run))
    assert differs(train_iters=77, log_interval=3, save_interval=9, eval_interval=4) == []
    assert differs(qk_layernorm=True) == ["model.qk_layernorm"]
    assert differs(lr=1e-6, seed=99) == ["lr", "seed"]
    assert not_loadable(run, plan(lr=1e-6, adam_beta2=0.9, global_batch_size=4), tmp_path / "here") == []
    other = {"optimizer": "lion", "bf16": True, "decoupled_lr": 1e-3, "model": {**MODEL, "num_layers": 2}}
    assert not_loadable(run, plan(**other), tmp_path / "here") == [
        "model.num_layers",
        "bf16",
        "decoupled_lr",
        "optimizer",
    ]
    for switch in ({"use_checkpoint_opt_param_scheduler": True}, {"override_opt_param_scheduler": False}):
        with pytest.raises(ConfigError, match=r"min_lr: 0\.0 in earlier, 1e-05 here, which cannot be used"):
            plan(min_lr=1e-5, **switch)
    with pytest.raises(ConfigError, match="fully_reshardable"):
        plan(tensor_model_parallel_size=2)
    (folder / "x.distcp").write_text("")
    assert (plan().continues, [note for note in plan().notes if "earlier" in note]) == ("", [])


def test_a_checkpoint_that_was_finished_just_before_a_kill_is_whole_and_told_of(tmp_path: Path) -> None:
    """Megatron names it, and may delete the one before at once; its files were not listed yet."""
    for iteration in (2, 4, 6):
        (tmp_path / f"iter_{iteration:07d}").mkdir()
        (tmp_path / f"iter_{iteration:07d}" / "x.distcp").write_text("x")
    (tmp_path / "iter_0000002/primus_sizes.json").write_text('{"x.distcp": 1}')
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("4")
    assert newest_whole(str(tmp_path)) == (4, (6,))
    told: list[int] = []
    watch = CheckpointWatch(str(tmp_path), lambda step, _: told.append(step), is_own=True)
    watch.look()
    watch.look()
    assert told == [4]
    assert (tmp_path / "iter_0000004/primus_sizes.json").exists()


def test_a_checkpoint_that_is_written_again_in_its_folder_is_whole(tmp_path: Path) -> None:
    """Its list of sizes was one of the files that the new list named: with the size of the old one."""
    (tmp_path / "iter_0000004").mkdir()
    for text in ("x", "longer"):
        (tmp_path / "iter_0000004/x.distcp").write_text(text)
        watch = CheckpointWatch(str(tmp_path), lambda *_: None)
        watch.changed_ns = 0
        (tmp_path / "latest_checkpointed_iteration.txt").write_text("4")
        watch.look()
        assert newest_whole(str(tmp_path)) == (4, ())


def test_what_chooses_kernels_of_amds_primus_is_said_and_changes_nothing(resolve: Resolve) -> None:
    kernels = {"use_turbo_deepep": True, "turbo_deepep_num_cu": 64, "turbo_sync_free_moe_stage": 1,
               "moe_use_legacy_grouped_gemm": True, "no_fp8_weight_transpose_cache": True}  # fmt: skip
    plain, with_them = (resolve(tiny(**more), ranks=2, gpus=2) for more in ({}, kernels))
    assert with_them.config["settings"] == plain.config["settings"]
    [note] = [note for note in with_them.notes if "kernels of AMD's Primus" in note]
    assert [name for name in kernels if name not in note] == []
    assert not [note for note in resolve(tiny(use_turbo_deepep=False)).notes if "kernels of AMD" in note]


def test_what_of_them_would_change_a_result_is_refused(resolve: Resolve) -> None:
    assert "'enable_turbo_attention_float8' cannot be True" in refused(resolve, enable_turbo_attention_float8=True)
    resolve(tiny(enable_turbo_attention_float8=False))


def test_a_training_on_gpus_in_float32_is_said(resolve: Resolve) -> None:
    said = "it trains in float32: neither bf16 nor fp16 is set"
    assert said in resolve(tiny(bf16=False), ranks=1, gpus=1).notes
    assert said not in resolve(tiny(bf16=True), ranks=1, gpus=1).notes
    assert said not in resolve(tiny(bf16=False)).notes


def test_profiled_steps_become_its_settings_for_torch_profiler(resolve: Resolve) -> None:
    settings = MEGATRON.profiling(ProfiledSteps(10, 13), "/run")
    assert settings == {
        "profile": True,
        "use_pytorch_profiler": True,
        "profile_step_start": 10,
        "profile_step_end": 14,
        "profile_ranks": [],
        "tensorboard_dir": "/run/traces/tensorboard",
    }
    resolved = resolve(tiny(**settings)).config["settings"]
    assert {name: resolved.get(name, []) for name in settings} == settings


RAW = {"input": "shards", "tokenizer_model": "tokenizer.json", "split": "98,2"}


def test_raw_text_is_tokenized_by_a_step_and_read_as_numbers(resolve: Resolve, tmp_path: Path) -> None:
    plan = resolve(tiny(data=RAW, mock_data=None, vocab_size=1024, eval_iters=1))
    [step] = plan.prepare
    settings = plan.config["settings"]
    assert step.argv[1:3] == ("-m", "primus_data.training.prepare_input")
    assert step.argv[step.argv.index("--model-vocab-size") + 1] == "1024"
    assert settings["data_path"] == [f"{step.argv[step.argv.index('--out') + 1]}/corpus_text_document"]
    assert (settings["split"], settings["tokenizer_type"], settings["eval_iters"]) == ("98,2", "NullTokenizer", 1)


def test_a_switch_that_is_off_and_the_vocabulary_of_the_text_are_no_other_data(resolve: Resolve) -> None:
    data = {"text": "python-stdlib", "vocab_size": 512}
    assert resolve(tiny(data=data, mock_data=False, vocab_size=512)).config["settings"]["mock_data"] is False


@pytest.mark.parametrize("split", ["98,1,1", None])
def test_a_part_of_the_data_that_would_be_empty_is_refused(split: str | None, resolve: Resolve, tmp_path: Path) -> None:
    """Megatron would look for its samples without end."""
    write_indexed(tmp_path / "few", [[1, 2, 3]] * 30)
    (tmp_path / "blend.txt").write_text("0.7 few 0.3 few")
    plain = {"mock_data": None, "tokenizer_type": "NullTokenizer", "eval_iters": 1, "split": split}
    named = {"data_args_path": "blend.txt"} if split else {"data_path": "few"}
    with pytest.raises(ConfigError, match="leaves nothing of 'few' for the test"):
        resolve(tiny(**plain, **named))
    assert resolve(tiny(**{**plain, **named, "split": "90,10"}))


def test_raw_text_without_a_split_is_all_trained_on(resolve: Resolve) -> None:
    data = {name: value for name, value in RAW.items() if name != "split"}
    plan = resolve(tiny(data=data, mock_data=None, vocab_size=1024, eval_iters=1))
    assert plan.config["settings"]["train_data_path"][0].endswith("/data/corpus_text_document")
    assert "no evaluation: there is no valid_data_path" in plan.notes


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mock_data": True}, "'mock_data' and 'data.input' both set the training data"),
        ({"split": "9,1,0"}, "'split' and 'data.input' both set the training data"),
        ({"vocab_size": None}, "'vocab_size' is not set"),
        ({"reset_position_ids": True}, "'reset_position_ids' needs the end of document"),
    ],
)
def test_raw_text_beside_other_data_is_refused(resolve: Resolve, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        resolve(tiny(**{"data": RAW, "mock_data": None, "vocab_size": 1024, **changes}))


def test_with_a_tokenizer_of_its_own_megatron_knows_the_end_of_document(resolve: Resolve) -> None:
    own = {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": "folder", "reset_position_ids": True}
    plan = resolve(tiny(data=RAW, mock_data=None, vocab_size=1024, **own))
    assert plan.config["settings"]["tokenizer_type"] == "HuggingFaceTokenizer"


def test_a_tokenizer_that_is_a_file_must_be_there_and_a_name_of_huggingface_co_need_not(resolve: Resolve) -> None:
    def files(**changes: Any) -> set[str]:
        own = {"mock_data": None, "train_data_path": "a", "vocab_size": 511, **changes}
        found = {Path(need.name).name for need in resolve(tiny(**own)).requires if need.kind == "file"}
        return found - {"a.bin", "a.idx"}

    assert files(tokenizer_model="meta-llama/Llama-3.1-8B") == set()
    assert files(tokenizer_model="./mine") == {"mine"}
    assert files(tokenizer_type="SentencePieceTokenizer", tokenizer_model="mine.model") == {"mine.model"}
    assert files(tokenizer_type="GPT2BPETokenizer", vocab_file="v.json", merge_file="m.txt") == {"v.json", "m.txt"}
    assert files(tokenizer_type="NullTokenizer") == set()


@pytest.mark.parametrize("path", ["a 0.7 b 0.3", "0.7 a b", "-0.7 a 0.3 b", [0.7, "a", "b"]])
def test_a_weight_that_is_not_before_its_path_is_refused_and_not_looked_for(resolve: Resolve, path: Any) -> None:
    for said in (
        refused(resolve, mock_data=None, tokenizer_type="NullTokenizer", train_data_path=path),
        refused(resolve, mock_data=None, tokenizer_type="NullTokenizer", data_path=path),
    ):
        assert "where a path should be" in said


@pytest.mark.parametrize(("ranks", "tensor"), [(1, 1), (2, 2)])
def test_data_with_tokens_that_the_model_lacks_are_refused_with_the_vocabulary_to_set(
    resolve: Resolve, tmp_path: Path, ranks: int, tensor: int
) -> None:
    write_indexed(tmp_path / "web", [[1, 2], [899, 3]], 1000)
    write_indexed(tmp_path / "fine", [[1, 510], [7]], 1000)
    own = {"mock_data": None, "tokenizer_type": "NullTokenizer", "tensor_model_parallel_size": tensor}
    for words in ({"train_data_path": "0.5 fine 0.5 web"}, {"data_path": "web", "split": "1,0,0"}):
        with pytest.raises(MachineError, match="web' cannot be trained on") as caught:
            resolve(tiny(**own, **words), ranks=ranks)
        assert caught.value.why.startswith("it has the token 899, but the model's vocabulary has 512 ")
        setting, _, _ = caught.value.fix.partition(", or")
        assert setting == f"vocab_size={900 - (0 if _knows_end(resolve) else 1)}"
        resolve(tiny(**own, **words, vocab_size=int(setting.partition("=")[2])), ranks=ranks)
    resolve(tiny(**own, train_data_path="fine"), ranks=ranks)
    padded = {**own, "tokenizer_type": "SentencePieceTokenizer", "padded_vocab_size": 512, "train_data_path": "web"}
    with pytest.raises(MachineError) as caught:
        resolve(tiny(**padded, vocab_size=None), ranks=ranks)
    assert caught.value.fix.startswith("padded_vocab_size=9")


def _knows_end(resolve: Resolve) -> bool:
    """Whether Megatron counts the end of document of its NullTokenizer: until 0.17 it adds that."""
    return "null_tokenizer_eod_id" in resolve().defaults


def test_a_pattern_of_raw_text_must_match_a_file(resolve: Resolve, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    text = tiny(mock_data=None, data={"input": "*.jsonl", "tokenizer_model": "tokenizer.json"})
    files = [need for need in resolve(text).requires if need.kind == "file"]
    assert [error.what for error in missing(files, {})] == [f"file '{tmp_path}/*.jsonl' not found"]
    (tmp_path / "web.jsonl").write_text('{"text": "a"}\n')
    assert not missing(files, {})
