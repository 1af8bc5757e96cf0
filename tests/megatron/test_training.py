"""Megatron's own loop really trains through the worker, alone and in parallel, stops and goes on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tests.megatron.conftest import MODEL, Train, losses, saved, tiny
from tests.tensorboard import scalars

pytest.importorskip("megatron.training", reason="megatron-core is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.full]

FROM_THE_FIRST = {"load": "first/checkpoints", "finetune": True}
"""The weights of one run's first checkpoint: parallel models draw their initial weights in another order."""
PARALLEL: dict[str, dict[str, Any]] = {
    "tensor": {"tensor_model_parallel_size": 2},
    "sequence": {"tensor_model_parallel_size": 2, "sequence_parallel": True},
    "pipeline": {"pipeline_model_parallel_size": 2},
    "interleaved": {"pipeline_model_parallel_size": 2, "num_layers_per_virtual_pipeline_stage": 1},
    "data": {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True},
}
EXPERTS = {"num_experts": 4, "moe_router_topk": 2, "moe_ffn_hidden_size": 96, "moe_aux_loss_coeff": 0.01}
EXPERTS_OF_TWO = {"expert_model_parallel_size": 2}
LATENT = {"q_lora_rank": 32, "kv_lora_rank": 16, "qk_head_dim": 16, "qk_pos_emb_head_dim": 8, "v_head_dim": 16}
DEEPSEEK: dict[str, Any] = {
    "model": {**MODEL, "group_query_attention": False, "multi_latent_attention": True, **LATENT},
    "num_experts": 4, "moe_layer_freq": "[0]*1+[1]*3", "moe_router_topk": 2, "moe_ffn_hidden_size": 96,
    "moe_shared_expert_intermediate_size": 96, "moe_router_score_function": "sigmoid", "moe_aux_loss_coeff": 0.0,
    "moe_router_load_balancing_type": "none", "moe_router_enable_expert_bias": True, "moe_router_num_groups": 2,
    "moe_router_group_topk": 1, "mtp_num_layers": 1,
}  # fmt: skip


def test_one_rank_trains_and_says_so_in_metrics_and_log(train: Train, tmp_path: Path) -> None:
    rows, log = train(tiny(), real=True)
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert losses(rows)[-1] < losses(rows)[0]
    last = rows[-1]
    assert (last["steps"], last["global_batch_size"], last["tokens"]) == (4, 8, 4 * 8 * 32)
    assert all(rows[0][name] > 0 for name in ("lr", "grad_norm", "tflops_per_gpu", "memory_gib"))
    assert last["tokens_per_second"] == pytest.approx(8 * 32 / last["step_time_s"])
    planned = json.loads((tmp_path / "run/config/backend_config.json").read_text())
    assert last["tflops_per_gpu"] == pytest.approx(last["tokens_per_second"] * planned["flops_per_token"] / 1e12)
    assert last["mfu"] is None, "of a CPU"
    assert log.count("iteration 4/4 | elapsed time per iteration (ms):") == 1
    assert "number of skipped iterations" not in log, "Megatron's own line would say it twice"
    assert re.search("^patched for this machine: .*cpu-device.* \\(why: primus_megatron.patches\\)$", log, re.M)


def test_processes_load_data_and_nothing_is_saved_as_in_amds_preset(train: Train) -> None:
    rows, _ = train(tiny(num_workers=2) + "save: null\n")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]


def test_each_evaluation_is_in_metrics_and_log(train: Train) -> None:
    rows, log = train(tiny(eval_iters=1, eval_interval=2, pipeline_model_parallel_size=2), ranks=2, real=True)
    found = [(row["step"], row["validation_loss"]) for row in rows if "validation_loss" in row]
    assert [step for step, _ in found] == [2, 4, 4], "and once more at the end"
    assert found[1][1] < found[0][1]
    assert log.count(f"iteration 2/4 | validation loss: {found[0][1]:.5f}") == 1
    assert log.count("test loss after iteration 4: ") == 1
    assert "lm loss value" not in log, "Megatron's own line would say it twice"
    assert [row["step"] for row in rows if "loss" in row] == [1, 2, 3, 4]


def test_the_time_of_a_step_is_megatrons_own(train: Train, tmp_path: Path) -> None:
    """Which leaves saves and evaluations out; a line has the mean of its steps, and what lay between the lines."""
    often = {"eval_iters": 1, "eval_interval": 8, "save_interval": 5, "log_interval": 2}
    told = {"disable_tensorboard": False, "log_timers_to_tensorboard": True}
    rows, _ = train(tiny(train_iters=12, seq_length=512, **often, **told))
    found = [row for row in rows if "loss" in row]
    assert [row["step"] for row in found] == list(range(2, 13, 2))
    assert all(row["tokens_per_second"] * row["step_time_s"] == pytest.approx(8 * 512) for row in found)
    assert [row["step"] for row in found if row["evaluation_s"]] == [10]
    assert {row["step"] for row in found if row["save_s"] > 0.02} == {6, 12}
    own = scalars(tmp_path / "run")["iteration-time"]
    ratios = [row["step_time_s"] / own[row["step"]] for row in found[1:]]  # the first, Megatron counts with its start
    assert median(ratios) == pytest.approx(1, rel=0.01), ratios
    events = [json.loads(line) for line in (tmp_path / "run/logs/events.jsonl").read_text().splitlines()]
    [ended] = [event for event in events if event["event"] == "training_ended"]
    assert ended["save_s"] > 0 < ended["evaluation_s"], "after the last step"


CHECK = {"check_for_nan_in_loss_and_grad": True}


@pytest.mark.parametrize(
    ("settings", "said", "bad", "lines"),
    [
        ({}, "the loss is nan at steps 3, 4, 5", [3, 4, 5], 5),
        (CHECK, "the loss or a gradient is not finite at step 2", [2], 1),
        ({**CHECK, "save_interval": 20}, "the loss or a gradient is not finite at step 2", [2], 1),
    ],
    ids=["three in a row", "Megatron's own check", "its check that repeats the step"],
)
def test_a_loss_that_is_no_number_ends_the_run(
    train: Train, tmp_path: Path, settings: dict[str, Any], said: str, bad: list[int], lines: int
) -> None:
    """At step 2 gradients are none any more, and from the next one on the loss is none."""
    rows, log = train(tiny(train_iters=20, lr=1e30, **settings), fails=True)
    assert f"TrainingError: {said}\n" in log
    assert ("why: Megatron has saved a checkpoint" in log) == ("save_interval" in settings)
    assert [row["loss"] is None for row in rows] == [row["step"] in bad for row in rows]
    assert len(rows) == lines
    events = [json.loads(line) for line in (tmp_path / "run/logs/events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["event"] == "loss_not_finite"] == bad
    assert ("WARNING: the loss of step 3 is nan" in log) == (not settings)


def test_the_last_step_is_logged_so_that_no_run_completes_with_a_loss_that_is_no_number(train: Train) -> None:
    rows, log = train(tiny(lr=1e30, log_interval=10), fails=True)
    assert [(row["step"], row["loss"]) for row in rows] == [(4, None)]
    assert "TrainingError: the loss is nan at step 4\n" in log


def test_however_two_ranks_share_the_work_they_lose_as_much_as_one(train: Train) -> None:
    train(tiny(train_iters=1, save_interval=1), run="first")
    alone = losses(train(tiny(**FROM_THE_FIRST), run="alone")[0])
    for name, parallel in PARALLEL.items():
        rows, log = train(tiny(**FROM_THE_FIRST, **parallel), ranks=2, run=name)
        assert losses(rows) == pytest.approx(alone, rel=1e-4), name
        assert log.count("iteration 4/4 |") == 1


def test_experts_on_two_ranks_lose_as_much_as_on_one(train: Train) -> None:
    train(tiny(**EXPERTS, train_iters=1, save_interval=1), run="first")
    alone = losses(train(tiny(**EXPERTS, **FROM_THE_FIRST), run="alone")[0])
    spread, _ = train(tiny(**EXPERTS, **FROM_THE_FIRST, expert_model_parallel_size=2), ranks=2, run="spread")
    assert losses(spread) == pytest.approx(alone, rel=1e-3)


def test_a_small_deepseek_loses_as_much_on_two_ranks_as_on_one(train: Train) -> None:
    """Latent attention, a dense layer first, shared experts, balance by a bias, and a layer for a further token."""
    first, _ = train(tiny(**DEEPSEEK, train_iters=1, save_interval=1), run="first")
    alone, _ = train(tiny(**DEEPSEEK, **FROM_THE_FIRST), run="alone")
    assert losses(alone)[0] < losses(first)[0] - 0.5
    for name, parallel in {"experts": EXPERTS_OF_TWO, "pipeline": {"pipeline_model_parallel_size": 2}}.items():
        spread, _ = train(tiny(**DEEPSEEK, **FROM_THE_FIRST, **parallel), ranks=2, run=name)
        assert losses(spread)[0] == pytest.approx(losses(alone)[0], rel=1e-5), name
        assert losses(spread) == pytest.approx(losses(alone), rel=1e-3), name


def test_experts_and_tensors_spread_over_four_ranks_lose_as_much_as_one(train: Train) -> None:
    train(tiny(**EXPERTS, train_iters=1, save_interval=1), run="first")
    alone = losses(train(tiny(**EXPERTS, **FROM_THE_FIRST), run="alone")[0])
    spread = {**EXPERTS_OF_TWO, "tensor_model_parallel_size": 2, "sequence_parallel": True}
    found = losses(train(tiny(**EXPERTS, **FROM_THE_FIRST, **spread), ranks=4, run="spread")[0])
    assert found[0] == pytest.approx(alone[0], rel=1e-5)
    assert found == pytest.approx(alone, rel=1e-3)


@pytest.mark.parametrize(
    "recompute",
    [
        {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
        {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]},
    ],
    ids=["whole layers", "attention"],
)
def test_what_is_computed_again_changes_no_loss(train: Train, recompute: dict[str, Any]) -> None:
    kept = losses(train(tiny(train_iters=2), run="kept")[0])
    assert losses(train(tiny(train_iters=2, **recompute), run="again")[0]) == pytest.approx(kept, rel=1e-6)


def test_sixteen_bits_train_on_a_cpu(train: Train) -> None:
    whole = losses(train(tiny(), run="whole")[0])
    half = losses(train(tiny(bf16=True, use_distributed_optimizer=True), run="half")[0])
    assert half == pytest.approx(whole, rel=2e-2)
    assert half != whole


def test_latent_attention_trains(train: Train) -> None:
    model = {**MODEL, "group_query_attention": False, "multi_latent_attention": True, **LATENT}
    rows, _ = train(tiny(model=model))
    assert losses(rows)[-1] < losses(rows)[0]


@pytest.mark.parametrize("distributed", [False, True], ids=["torch's Adam", "distributed optimizer"])
def test_a_run_that_stopped_continues_exactly(train: Train, tmp_path: Path, distributed: bool) -> None:
    text = tiny(train_iters=6, save_interval=2, use_distributed_optimizer=distributed)
    whole, _ = train(text, run="whole")
    for part in (tmp_path / "whole/checkpoints/iter_0000006").glob("*.distcp"):
        part.write_bytes(part.read_bytes()[:-100])  # as if it had been cut off
    rest, _ = train(text, run="rest", previous=saved(tmp_path / "whole"))
    assert [row["step"] for row in rest] == [5, 6]
    assert losses(rest) == losses(whole)[4:]
    assert rest[-1]["tokens"] == whole[-1]["tokens"]


def test_a_further_attempt_goes_on_from_the_newest_whole_checkpoint(train: Train, tmp_path: Path) -> None:
    text = tiny(save_interval=2)
    train(text)
    (tmp_path / "run/metrics.jsonl").unlink()
    (tmp_path / "run/checkpoints/iter_0000004/.metadata").write_bytes(b"")
    rows, log = train(text)
    assert [row["step"] for row in rows] == [3, 4]
    assert "WARNING: the checkpoint of iteration 4 is incomplete; resuming from 2" in log
    events = [json.loads(line) for line in (tmp_path / "run/logs/events.jsonl").read_text().splitlines()]
    saves = [event["step"] for event in events if event["event"] == "checkpoint_saved"]
    assert saves == [2, 4, 4]


@pytest.mark.parametrize("ranks", [1, 2], ids=["one rank", "pipeline of two"])
def test_a_tensor_parallel_checkpoint_loads_into_another_layout(train: Train, tmp_path: Path, ranks: int) -> None:
    whole, _ = train(tiny(save_interval=2, tensor_model_parallel_size=2), ranks=2, run="whole")
    (tmp_path / "whole/checkpoints/iter_0000004/.metadata").unlink()
    text = tiny(save_interval=2, pipeline_model_parallel_size=ranks)
    rest, _ = train(text, ranks=ranks, run="rest", previous=saved(tmp_path / "whole"))
    assert [row["step"] for row in rest] == [3, 4]
    assert losses(rest) == pytest.approx(losses(whole)[2:], rel=1e-4)


def test_the_last_checkpoint_can_be_left_out(train: Train, tmp_path: Path) -> None:
    train(tiny(save_interval=3, disable_last_saving=True))
    assert [path.name for path in (tmp_path / "run/checkpoints").glob("iter_*")] == ["iter_0000003"]
