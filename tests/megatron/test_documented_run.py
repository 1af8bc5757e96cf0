"""The run that people know: Llama 3.1 8B on FineWeb, its file as it is, planned for a machine that is not here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from tests.conftest import ROOT, Run, checksums
from tests.indexed_files import write_indexed
from tests.machine.machines import amd, base, write

from primus_core.journal import summary
from primus_megatron.installation import importable_version

EXPERIMENT = ROOT / "examples/megatron/configs/MI300X/llama3.1_8B-fineweb-pretrain.yaml"
TRAIN = ("--", "train", "pretrain", "--config", str(EXPERIMENT))
DATA = "/data/primus_data/fineweb/llama3.1/fineweb_text_document"

AS_WRITTEN = {
    "train_iters": 10000, "micro_batch_size": 4, "global_batch_size": 512, "seq_length": 8192,
    "max_position_embeddings": 8192, "lr": 3e-4, "min_lr": 3e-5, "lr_warmup_iters": 2000, "lr_decay_iters": 10000,
    "lr_decay_style": "cosine", "weight_decay": 0.1, "adam_beta1": 0.9, "adam_beta2": 0.95, "clip_grad": 1.0,
    "eod_mask_loss": True, "init_method_std": 0.01, "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2,
    "expert_model_parallel_size": 1, "overlap_grad_reduce": True, "overlap_param_gather": True,
    "gradient_accumulation_fusion": True, "use_distributed_optimizer": True, "mock_data": False,
    "valid_data_path": None, "test_data_path": None, "data_cache_path": "/data/primus_data/cache", "finetune": False,
    "load": None, "no_load_optim": False, "no_load_rng": False, "save_interval": 1000, "no_save_optim": False,
    "no_save_rng": False, "ckpt_format": "torch", "cross_entropy_fusion_impl": "te", "cross_entropy_loss_fusion": True,
    "bf16": True, "fp16": False, "eval_interval": 500, "wandb_project": "Primus_Llama_Pretrain_FineWeb",
}  # fmt: skip
"""What Megatron gets under the same name."""
OWN = {
    "auto_continue_train": True, "disable_last_saving": False, "disable_tensorboard": False, "disable_wandb": False,
    "enable_primus_turbo": True, "use_turbo_attention": True, "use_turbo_grouped_mlp": True, "norm_epsilon": 1e-5,
    "stderr_sink_level": "INFO", "log_avg_skip_iterations": 10, "log_avg_reset_interval": 100,
}  # fmt: skip
"""What is Primus's."""


@pytest.fixture
def node(tmp_path: Path) -> str:
    """A machine with 8 MI300X."""
    write(tmp_path / "node", base(), amd("MI300X"))
    return str(tmp_path / "node")


def planned(primus: Run, node: str, *words: str) -> Any:
    done = primus("direct", "--dry-run", "--json", "--assume-host", node, *TRAIN, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.full
def test_it_is_planned_for_eight_ranks_and_each_of_its_settings_is_accounted_for(
    primus: Run, node: str, tmp_path: Path
) -> None:
    import yaml

    overrides = yaml.safe_load(EXPERIMENT.read_text())["modules"]["pre_trainer"]["overrides"]
    plan = planned(primus, node)
    ranks = next(step["ranks"] for step in plan["steps"] if step["kind"] == "worker")
    assert (ranks, plan["config"]["data_parallel"], plan["config"]["device"]) == (8, 2, "gpu")
    settings, own = plan["config"]["settings"], plan["config"]["own"]
    changed = {
        "train_data_path": [DATA],
        "save": str(tmp_path / "output/checkpoints/llama3.1_8B_fineweb"),
        "layernorm_epsilon": 1e-5,
        "eval_iters": 0,
    }
    assert AS_WRITTEN.items() <= settings.items()
    assert changed.items() <= settings.items()
    assert OWN.items() <= own.items()
    assert {*AS_WRITTEN, *changed, *OWN} - {"layernorm_epsilon"} == set(overrides)


@pytest.mark.full
def test_what_nobody_can_know_of_another_machine_is_listed_and_told(primus: Run, node: str) -> None:
    plan = planned(primus, node)
    needs = {need["name"] for need in plan["requires"]}
    kernels = {"transformer_engine", "fused_weight_gradient_mlp_cuda", "primus_turbo"}
    assert needs >= {*kernels, "wandb", "tensorboard", f"{DATA}.bin", f"{DATA}.idx"}
    notes = " ".join(plan["notes"])
    assert "it is not known what is installed there" in notes
    assert "'cross_entropy_fusion_impl: te' is rejected by Megatron since 0.18" in notes
    assert "no evaluation: there is no valid_data_path" in notes
    assert "use_turbo_grouped_mlp is ignored: the model has no experts" in notes


@pytest.mark.full
def test_a_misspelt_override_is_refused_with_a_suggestion(primus: Run, node: str) -> None:
    done = primus("direct", "--dry-run", "--assume-host", node, *TRAIN, "eod_mask_los=false")
    assert done.returncode == 2
    assert "did you mean 'eod_mask_loss'?" in done.stderr


@pytest.mark.full
def test_sizes_that_do_not_divide_the_ranks_are_refused_with_the_numbers(primus: Run, node: str) -> None:
    done = primus("direct", "--dry-run", "--assume-host", node, *TRAIN, "pipeline_model_parallel_size=3")
    assert done.returncode == 2
    assert "tensor 2 x pipeline 3 x context 1 = 6 does not divide 8 ranks" in done.stderr


@pytest.mark.full
def test_its_nodes_need_not_be_known_yet(primus: Run) -> None:
    done = primus("slurm", "--dry-run", "sbatch", "-N", "2", *TRAIN)
    assert done.returncode == 0, done.stderr
    assert "the layout is checked on the nodes" in done.stdout


SMALL = {
    "model.num_layers": 2, "model.hidden_size": 64, "model.ffn_hidden_size": 128, "model.num_attention_heads": 4,
    "model.num_query_groups": 2, "model.kv_channels": 16, "model.vocab_size": 512, "tokenizer_type": "NullTokenizer",
    "seq_length": 64, "max_position_embeddings": 64, "micro_batch_size": 2, "global_batch_size": 8,
    "lr_warmup_iters": 1, "lr_decay_iters": 8, "save_interval": 2, "eval_interval": 2,
    "train_data_path": "corpus", "data_cache_path": "cache",
}  # fmt: skip
LEFT_OUT = {
    "enable_primus_turbo": False, "use_turbo_attention": False, "use_turbo_grouped_mlp": False,
    "gradient_accumulation_fusion": False, "cross_entropy_loss_fusion": False, "tensor_model_parallel_size": 1,
    "disable_wandb": True, "disable_tensorboard": True,
}  # fmt: skip
"""What two CPU cores do not have."""


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.skipif(not importable_version(), reason="megatron-core is not installed")
def test_a_small_copy_of_it_trains_and_goes_on_in_the_folder_that_it_names(primus: Run, tmp_path: Path) -> None:
    write_indexed(tmp_path / "corpus", ([*(number * i % 50 for i in range(100)), 511] for number in range(100)))
    words = [f"{name}={json.dumps(value)}" for name, value in {**SMALL, **LEFT_OUT}.items()]
    environ = {"CUDA_VISIBLE_DEVICES": "", "GPUS_PER_NODE": "2"}
    for iterations, first in ((4, 1), (6, 5)):
        done = primus("direct", *TRAIN, *words, f"train_iters={iterations}", env=environ)
        assert done.returncode == 0, done.stderr[-3000:]
        rows = summary.read(str(tmp_path / "output/llama3.1_8B-fineweb-pretrain/metrics.jsonl"))
        assert [row["step"] for row in rows] == list(range(first, iterations + 1))
        assert (tmp_path / f"output/checkpoints/llama3.1_8B_fineweb/iter_000000{iterations}").is_dir()
    shared = tmp_path / "output/checkpoints/llama3.1_8B_fineweb"
    assert f"continues from iteration 4 in {shared}" in done.stderr

    run, saved = (tmp_path / "output/llama3.1_8B-fineweb-pretrain").resolve(), checksums(shared)
    again = primus("replay", str(run), env=environ)
    assert again.returncode == 0, again.stderr[-3000:]
    new = (tmp_path / "output/llama3.1_8B-fineweb-pretrain").resolve()
    assert new != run
    assert summary_of(new) == summary_of(run), (
        "it begins where that run began, though the folder has a later checkpoint"
    )
    assert checksums(shared) == saved
    assert (new / "checkpoints/iter_0000006").is_dir()

    finished = primus("direct", *TRAIN, *words, "train_iters=6", env=environ)
    assert finished.returncode == 1, "the folder has that iteration already"
    assert "no step was made, but training should end at step 6" in finished.stderr


def summary_of(run: Path) -> list[tuple[int, float]]:
    return [(row["step"], row["loss"]) for row in summary.read(str(run / "metrics.jsonl"))]
