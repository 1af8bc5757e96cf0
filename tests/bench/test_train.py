"""`bench train`: layers of every kind against the layer written out, FLOPs of the catalogue, and real trainings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import Run
from torch.utils.flop_counter import FlopCounterMode

from primus_bench.benchmarks.train import worker
from primus_bench.benchmarks.train.check import wrong
from primus_bench.benchmarks.train.experiment import Trained
from primus_bench.benchmarks.train.layer import Layer, draw, forward
from primus_bench.benchmarks.train.problem import Problem, as_json, of_json, one_layer, unbuildable
from primus_bench.benchmarks.train.trained import report
from primus_bench.measure.training import steady
from primus_core.errors import MachineError, PrimusError
from primus_train.models import catalogue
from primus_train.models.architecture import Architecture, LatentAttention, Mixture
from primus_train.models.arithmetic import flops_per_token

pytestmark = pytest.mark.torch

TINY = Architecture(
    num_layers=1, hidden_size=48, ffn_hidden_size=64, num_attention_heads=4, num_kv_heads=2, head_dim=16,
    vocab_size=99, max_position_embeddings=99, rope_theta=10000, norm_eps=1e-6, tie_embeddings=True,
)  # fmt: skip
MOE = Mixture(num_experts=8, topk=2, moe_ffn_hidden_size=24)
MLA = LatentAttention(kv_lora_rank=24, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=12)
KINDS: dict[str, dict[str, Any]] = {
    "grouped queries": {},
    "biases": {"qkv_bias": True, "out_bias": True},
    "norms of heads": {"qk_norm": "rms", "norms_per_layer": 4, "activation": "geglu"},
    "l2 and a window": {"qk_norm": "l2", "sliding_window": 7, "rope_theta_local": 500},
    "chunks": {"attention_chunk": 6, "activation": "clamped_swiglu"},
    "experts": {"moe": MOE},
    "sigmoid and a shared expert": {"moe": replace(MOE, score="sigmoid", shared_expert_ffn=40, routed_scaling=2.5)},
    "biases of experts": {"moe": replace(MOE, score="softmax_topk", mlp_bias=True, router_bias=True)},
    "scores on the input": {"moe": replace(MOE, topk=1, scores_on_input=True, score="sigmoid")},
    "latent attention": {"mla": MLA, "num_kv_heads": 4},
    "latent queries": {"mla": replace(MLA, q_lora_rank=20), "num_kv_heads": 4, "moe": MOE},
}


def problem(kind: str = "grouped queries", dtype: str = "bf16") -> Problem:
    """Two sequences of 24 tokens."""
    return Problem("tiny", replace(TINY, **KINDS[kind]), 24, 2, dtype)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.full
def test_a_layer_of_each_kind_is_what_is_written_out(kind: str, dtype: str) -> None:
    assert wrong(forward, draw(problem(kind, dtype), "cpu", 0)) == ""


def of_layer(**changed: Any) -> Any:
    """A layer that is computed with other facts."""
    return lambda layer: forward(
        replace(layer, problem=layer.problem._replace(facts=replace(layer.problem.facts, **changed)))
    )


def other_mask(layer: Layer) -> torch.Tensor:
    """Everybody sees everybody."""
    return forward(replace(layer, seen=torch.ones(24, 24, dtype=torch.bool)))


def other_experts(layer: Layer) -> torch.Tensor:
    """Each token at the next experts."""
    return forward(replace(layer, chosen=(layer.chosen + 1) % 8))


def other_angles(layer: Layer) -> torch.Tensor:
    """No rotary embedding."""
    return forward(replace(layer, angles=torch.zeros_like(layer.angles)))


def half_a_gradient(layer: Layer) -> torch.Tensor:
    """The output is right; the gradient of one matrix is halved."""
    name = next(iter(layer.weights))
    weight = layer.weights[name]
    return forward(replace(layer, weights={**layer.weights, name: weight.detach() / 2 + weight / 2}))


def not_finite(layer: Layer) -> torch.Tensor:
    """Far from the tokens that are compared."""
    spoiled = torch.zeros_like(layer.x)
    spoiled[1, 20, 3] = float("inf")
    return forward(layer) + spoiled


@pytest.mark.parametrize(
    ("build", "kind", "said"),
    [(other_mask, "grouped queries", "output is"), (other_angles, "latent attention", "output is"),
     (other_experts, "experts", "is "), (of_layer(activation="geglu"), "grouped queries", "output is"),
     (of_layer(norms_per_layer=2), "norms of heads", "output is"), (half_a_gradient, "experts", "gradient of"),
     (not_finite, "grouped queries", "output is not finite")],
)  # fmt: skip
@pytest.mark.full
def test_a_wrong_layer_or_gradient_is_found(build: Any, kind: str, said: str) -> None:
    assert said in wrong(build, draw(problem(kind), "cpu", 0))


def test_a_wrong_layer_is_exit_1_and_no_speed_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--model", "tiny", "--facts", as_json(TINY), "--seq-len", "24", "--device", "cpu")
    with pytest.raises(PrimusError, match="wrong result on rank 0") as caught:
        worker.main((*words, "--output", str(tmp_path / "r.json")), other_mask)
    assert caught.value.exit_code == 1
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "r.json").exists()


def test_a_layer_that_does_not_fit_is_exit_3() -> None:
    facts = as_json(replace(TINY, ffn_hidden_size=2**36))
    with pytest.raises(MachineError, match="does not fit into memory"):
        worker.main(("--model", "huge", "--facts", facts, "--device", "cpu"))


@pytest.mark.parametrize("kind", ["grouped queries", "experts", "latent queries"])
@pytest.mark.full
def test_the_flops_are_those_that_torch_counts(kind: str) -> None:
    """But for attention itself, the norms of MLA, and the router, which nobody counts."""
    one = problem(kind, "fp32")
    layer = draw(one, "cpu", 0)
    with FlopCounterMode(display=False) as counted:
        torch.autograd.grad(forward(layer), layer.inputs, layer.upstream)
    router = 6 * TINY.hidden_size * MOE.num_experts * bool(one.facts.moe)
    norms = sum(6 * row.inputs for row in one.matrices if row.norm)
    scores = flops_per_token(one.facts, one.seq_len)["scores"]
    attention = 2 * scores * bool(one.facts.mla)  # two multiplications there, with the masked pairs
    found = counted.get_flop_counts()["Global"]
    multiplied = sum(work for name, work in found.items() if str(name) in ("aten.mm", "aten.bmm", "aten.addmm"))
    assert multiplied == one.tokens * (one.flops_per_token - scores - norms + router + attention)


def test_a_layer_of_each_model_of_the_catalogue_is_a_layer_of_its_flops() -> None:
    """The layers of a dense model without windows add up to its work, the head apart."""
    models = catalogue.load()
    for name, model in models.items():
        facts = one_layer(model.facts)
        if not list(unbuildable(facts)):
            assert of_json(as_json(facts)) == facts, name
    whole = flops_per_token(models["llama3.1_8B"].facts, 4096)
    layer = Problem("llama3.1_8B", one_layer(models["llama3.1_8B"].facts), 4096)
    assert 32 * layer.flops_per_token == sum(whole.values()) - whole["head"]
    assert list(unbuildable(models["gpt_oss_20B"].facts)) == ["attention with sinks"]


MODEL = """
family: tiny
models:
  tiny:
    source: [a test]
    num_layers: 2
    hidden_size: 64
    ffn_hidden_size: 96
    num_attention_heads: 4
    num_kv_heads: 2
    head_dim: 16
    vocab_size: 512
    max_position_embeddings: 512
    rope_theta: 10000
    norm_eps: 1e-05
    tie_embeddings: true
"""
EXPERIMENT = """
exp_name: quick
workspace: ./output
modules:
  pre_trainer:
    framework: torchtitan
    data: {text: texts, vocab_size: 280, document_chars: 1024}
    overrides:
      model: {family: llama3, dim: 64, n_layers: 1, n_heads: 4, n_kv_heads: 2, ffn_hidden_dim: 128}
      training: {steps: 240, seq_len: 32, local_batch_size: 4}
      loss: {kind: cross_entropy}
      activation_checkpoint: {mode: none}
      checkpoint: {enable: true, interval: 10}
      metrics: {log_freq: 1}
"""


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_layer_is_measured_by_all_ranks_at_once(primus: Run, tmp_path: Path, ranks: int) -> None:
    (tmp_path / "tiny.yaml").write_text(MODEL)
    words = ["--model", "tiny.yaml", "--seq-len", "16", "--device", "cpu", "--duration", "0.1"]
    words += ["--optimizer", "adamw"] * (ranks == 1)
    done = primus("direct", "--", "bench", "train", *words, "--output", "r.md", "--output", "r.csv",
                  env={"GPUS_PER_NODE": str(ranks)}, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "output/bench-train/train.json").read_text())
    steps = ["forward-backward", "forward-backward-adamw"][: 2 if ranks == 1 else 1]
    assert [case["name"] for case in found["cases"]] == [f"tiny.yaml/{step}" for step in steps]
    for case in found["cases"]:
        figures = case["derived"]
        assert case["value"] == pytest.approx(16 * ranks / case["median"]) == figures["tokens_per_second"]
        assert figures["tokens_per_second_per_gpu"] * ranks == pytest.approx(case["value"])
        assert figures["tflops_per_gpu"] == pytest.approx(
            figures["flops_per_token"] * figures["tokens_per_second_per_gpu"] / 1e12
        )
        assert len(figures["tokens_per_second_of_ranks"]) == ranks
    assert "no MFU" in str(found["notes"])
    assert (tmp_path / "r.md").read_text().startswith("# Training of a layer")


@pytest.mark.full
def test_an_experiment_is_trained_for_some_steps_and_its_metrics_are_the_figures(primus: Run, tmp_path: Path) -> None:
    pytest.importorskip("torchtitan", reason="torchtitan is not installed")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("All the world's a stage, and all the men and women merely players.\n" * 400)
    (tmp_path / "quick.yaml").write_text(EXPERIMENT)
    words = ("--config", "quick.yaml", "--steps", "10", "--output", "r.csv", "checkpoint.enable=false")
    done = primus("direct", "--", "bench", "train", *words, env={"GPUS_PER_NODE": "2"}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "output/bench-train"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    [case] = json.loads((run / "train.json").read_text())["cases"]
    assert [row["step"] for row in rows] == list(range(1, 11))
    speeds = sorted(row["tokens_per_second"] for row in rows[2:])
    assert case["value"] == pytest.approx((speeds[3] + speeds[4]) / 2)
    assert case["samples"] == [row["step_time_s"] for row in rows[2:]]
    assert case["derived"]["memory_gib"] == max(row["memory_gib"] for row in rows)
    assert "loss" in (tmp_path / "r.csv").read_text()


def test_a_loss_that_is_not_finite_gives_no_speed() -> None:
    trained = Trained(3, "quick.yaml", (), False, ("acme.worker",))
    rows = [{"step": step, "steps": 3, "loss": None if step == 2 else 1.0, "step_time_s": 1.0} for step in (1, 2, 3)]
    with pytest.raises(PrimusError, match="wrong result") as caught:
        report(rows, trained)
    assert (caught.value.exit_code, caught.value.why) == (1, "the loss is not finite at step 2")
    with pytest.raises(PrimusError, match="logged no step"):
        report([], trained)


def test_the_first_steps_and_those_that_were_done_again_do_not_count() -> None:
    rows = [{"step": step, "step_time_s": float(step)} for step in (1, 2, 3, 2, 3, 4)]
    assert steady(rows).values("step_time_s") == [2, 3, 4]
    assert steady(rows[:1]).values("step_time_s") == [1]
    assert len(steady([{"step": step} for step in range(50)]).rows) == 40


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--model llama3.1_8B, --config FILE"),
        (("--model", "llama3_1_8B"), "did you mean 'llama3.1_8B'?"),
        (("--model", "llama3.1_8B", "--dtype", "fp8"), "'bf16', 'fp16', 'fp32'"),
        (("--model", "llama3.1_8B", "--optimizer", "adam"), "did you mean 'adamw'?"),
        (("--model", "llama3.1_8B", "--seq-len", "4KiB"), "whole number from 1"),
        (("--model", "llama3.1_8B", "--steps", "9"), "only an experiment has --steps"),
        (("--model", "llama3.1_8B", "training.steps=9"), "only an experiment has settings"),
        (("--model", "gpt_oss_20B"), "attention with sinks"),
        (("--model", "mixtral_8x7B", "--seq-len", "3"), "that 8 divides"),
        (("--model", "llama3.1_8B", "--config", "x.yaml"), "both define what is trained"),
        (("--config", "x.yaml", "--seq-len", "8"), "training.seq_len=4096"),
        (("--config", "x.yaml", "--duration", "8"), "only a layer has --duration"),
        (("--config", "x.yaml", "--steps", "1"), "whole number from 2"),
        (("--config", "x.yaml"), "x.yaml"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_what_can(
    primus: Run, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = primus("direct", "--dry-run", "--", "bench", "train", *words, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
