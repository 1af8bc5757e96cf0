"""How `verify` makes small trainings of Megatron experiments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.conftest import ROOT, Run
from tests.templates import of
from tests.verify.trials import texts, verifier

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from primus_megatron.verification import VERIFIER
from primus_train.models.architecture import Architecture, LatentAttention, Mixture
from primus_verify.exchange import with_neutral
from primus_verify.feasibility import is_reference
from primus_verify.layouts import parse
from primus_verify.testing import VerifierConformance

MODELS = list(
    {
        template.model: f"template:{template.backend}/{template.model}/{template.gpu}" for template in of("megatron")
    }.values()
)
LATENT = Architecture(
    num_layers=2, hidden_size=8, ffn_hidden_size=12, num_attention_heads=2, num_kv_heads=2, head_dim=6,
    vocab_size=16, max_position_embeddings=64, rope_theta=1e4, norm_eps=1e-5, tie_embeddings=False,
    moe=Mixture(num_experts=2, topk=1, moe_ffn_hidden_size=4, first_k_dense=1),
    mla=LatentAttention(kv_lora_rank=4, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=4),
)  # fmt: skip
WHOLE: Any = VERIFIER
EXAMPLE = str(ROOT / "examples/megatron/tiny-cpu.yaml")
OVERLAPS = ("use_distributed_optimizer=true", "overlap_grad_reduce=true", "overlap_param_gather=true")


class TestTemplates(VerifierConformance):
    framework = "megatron"
    experiments: ClassVar[tuple[str, ...]] = (MODELS[0], *(one for one in MODELS if "deepseek_v2_lite" in one))


@pytest.mark.full
class TestAllTemplates(VerifierConformance):
    framework = "megatron"
    experiments: ClassVar[tuple[str, ...]] = tuple(MODELS)


def test_layers_and_experts_are_taken_apart_and_master_weights_are_left_out() -> None:
    stored = {
        "decoder.layers.mlp.experts.experts.linear_fc1.weight": np.ones((2, 2, 3, 4)),
        "optimizer.state.exp_avg_sq.decoder.layers.self_attention.linear_qkv.weight": np.ones((2, 3)),
        "optimizer.state.param.decoder.final_layernorm.weight": np.ones(4),
        "decoder.final_layernorm.weight": np.ones(4),
        "decoder.layers.0.mlp.router.weight": np.ones((4, 4)),
    }
    assert [(kind, name) for kind, name, _ in VERIFIER.tensors(stored)] == [
        ("weight", "decoder.layers.0.mlp.experts.experts.0.linear_fc1.weight"),
        ("weight", "decoder.layers.0.mlp.experts.experts.1.linear_fc1.weight"),
        ("weight", "decoder.layers.1.mlp.experts.experts.0.linear_fc1.weight"),
        ("weight", "decoder.layers.1.mlp.experts.experts.1.linear_fc1.weight"),
        ("second moment", "decoder.layers.0.self_attention.linear_qkv.weight"),
        ("second moment", "decoder.layers.1.self_attention.linear_qkv.weight"),
        ("weight", "decoder.final_layernorm.weight"),
        ("weight", "decoder.layers.0.mlp.router.weight"),
    ]


def test_weights_of_experts_and_latent_attention_have_hugging_faces_names() -> None:
    """Gate and up stand in one array."""
    found = {
        name: array.shape
        for weight, shape in {
            "mlp.experts.experts.1.linear_fc1.weight": (8, 8), "mlp.shared_experts.linear_fc2.weight": (8, 4),
            "mlp.router.weight": (2, 8), "mlp.router.expert_bias": (2,), "self_attention.q_layernorm.weight": (4,),
            "self_attention.linear_kv_down_proj.weight": (6, 8),
        }.items()
        for name, array, _ in VERIFIER.neutral(f"decoder.layers.1.{weight}", np.ones(shape), LATENT)
    }  # fmt: skip
    assert found == {
        "layers.1.mlp.experts.1.gate_proj.weight": (4, 8), "layers.1.mlp.experts.1.up_proj.weight": (4, 8),
        "layers.1.mlp.shared_experts.down_proj.weight": (8, 4), "layers.1.mlp.gate.weight": (2, 8),
        "layers.1.self_attn.q_a_layernorm.weight": (4,), "layers.1.self_attn.kv_a_proj_with_mqa.weight": (6, 8),
    }  # fmt: skip


def test_a_bias_that_a_rule_has_moved_is_zero_again_when_weights_are_written() -> None:
    raw = {"decoder.layers.0.mlp.router.expert_bias": np.full(4, 0.001, np.float32)}
    assert with_neutral(WHOLE, raw, {}, LATENT) == {"decoder.layers.0.mlp.router.expert_bias": pytest.approx(0.0)}


def test_replicated_data_parallelism_has_no_setting_and_is_not_the_reference() -> None:
    layouts = {text: parse(text, VERIFIER.rank_axes) for text in ("dp=2", "mbs=4", "mbs=2")}
    found = {text: is_reference(WHOLE, layout, {"micro_batch_size": 4}, 8) for text, layout in layouts.items()}
    assert found == {"dp=2": False, "mbs=4": True, "mbs=2": False}


def test_experts_have_the_experiments_sequence_parallelism_or_the_layout_with_it_is_named(primus: Run) -> None:
    words = ("direct", "--dry-run", "--json", "--", "verify", "--config", EXAMPLE, "num_experts=4")
    done = primus(*words, "--layouts", "tp=2")
    assert done.returncode == 2
    assert "without sequence_parallel" in done.stderr
    assert "fix: --layouts tp=2,sp=1" in done.stderr
    assert "--shrink" not in done.stderr
    with_it = primus(*words, "sequence_parallel=true", "tensor_model_parallel_size=2", "--layouts", "tp=2")
    assert json.loads(with_it.stdout)["config"]["layouts"] == ["tp=2,sp=1"]


def test_experts_that_are_balanced_within_a_micro_batch_have_no_other_size_of_it(primus: Run) -> None:
    words = ["direct", "--dry-run", "--json", "--", "verify", "--config", EXAMPLE, "num_experts=4"]
    words += ["moe_aux_loss_coeff=0.01", "micro_batch_size=1"]
    refused = primus(*words, "--layouts", "mbs=1")
    assert refused.returncode == 2
    assert "moe_router_load_balancing_type: aux_loss is computed within each micro-batch" in refused.stderr
    for word in ("moe_router_load_balancing_type=seq_aux_loss", "moe_aux_loss_coeff=0.0"):
        assert primus(*words, word, "--layouts", "mbs=1").returncode == 0
    balanced = {"num_experts": 4, "moe_aux_loss_coeff": 0.01, "micro_batch_size": 1}
    assert "mbs" not in VERIFIER.own(balanced)
    assert [*VERIFIER.unexpressed(balanced)] == ["micro_batch_size=1"]
    several = {"moe_router_load_balancing_type": ["seq_aux_loss", "aux_loss"], "moe_aux_loss_coeff": [0.01, 0.0]}
    assert VERIFIER.own({**balanced, **several})["mbs"] == 1
    assert VERIFIER.own({**balanced, "num_experts": None})["mbs"] == 1
    assert VERIFIER.by_micro_batch({"num_experts": 4, "moe_expert_capacity_factor": 1.0})


def test_virtual_stages_have_a_multiple_of_micro_batches() -> None:
    assert VERIFIER.batch([{"pp": 3, "vpp": 2}]) == 24
    assert VERIFIER.experiment({}, shrink=True, layouts=[{"dp": 8}], device="cpu")["global_batch_size"] == 16
    with pytest.raises(ValueError, match="needs a multiple of 16 sequences"):
        VERIFIER.settings({"dp": 8}, 8)


def test_the_files_of_a_layer_specification_count_for_kept_results() -> None:
    assert VERIFIER.packages({"spec": ["mine.layers", "spec"]}) == ("megatron", "primus_megatron", "mine")


def test_layouts_overlap_communication_as_the_experiment_does() -> None:
    """Weights are gathered by the distributed optimizer alone: Megatron refuses to overlap that without it."""
    names = ("overlap_grad_reduce", "overlap_param_gather")
    for given in (dict.fromkeys(names, True), {names[0]: True}, {}):
        small = VERIFIER.experiment(given, shrink=True, layouts=[], device="cpu")
        assert [small[name] for name in names] == [given.get(name, False) for name in names]
    assert VERIFIER.settings({"dp": 2})["overlap_param_gather"] is False
    assert VERIFIER.settings({"dp": 2, "zero": 0})["overlap_param_gather"] is False
    assert "overlap_param_gather" not in VERIFIER.settings({"dp": 2, "zero": 1})


def test_what_no_axis_stands_for_is_named() -> None:
    settings = {
        "use_megatron_fsdp": True, "use_torch_fsdp2": True, "num_distributed_optimizer_instances": 2,
        "expert_tensor_parallel_size": 1, "tensor_model_parallel_size": 2, "decoder_first_pipeline_num_layers": 3,
        "pipeline_model_parallel_layout": "E|t*4|L", "recompute_granularity": "selective", "overlap_param_gather": True,
        "overlap_grad_reduce": True, "overlap_p2p_comm": True, "moe_shared_expert_overlap": True, "fp8": None,
    }  # fmt: skip
    assert set(VERIFIER.unexpressed(settings)) == {
        "use_megatron_fsdp=true", "use_torch_fsdp2=true", "num_distributed_optimizer_instances=2",
        "expert_tensor_parallel_size=1", "decoder_first_pipeline_num_layers=3", "recompute_granularity=selective",
        "pipeline_model_parallel_layout=E|t*4|L", "overlap_param_gather=true",
    }  # fmt: skip
    sharded = {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True}
    assert VERIFIER.unexpressed(sharded) == {}, "trials have them"
    whole = {"recompute_granularity": "full", "expert_tensor_parallel_size": 2, "tensor_model_parallel_size": 2}
    assert VERIFIER.unexpressed(whole) == {}
    assert VERIFIER.own(whole)["recompute"] == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "words", "said"),
    [
        ("norms_not_summed", ["--layouts", "tp=2,sp=1"], "layer_norm_weight is .*not summed over tensor parallelism"),
        ("tied_embeddings_not_summed",
         ["untie_embeddings_and_output_weights=false", "--layouts", "pp=2"],
         "gradient of embedding.word_embeddings.weight is .*not summed over pipeline parallelism"),
        ("norm_of_one_rank", ["--layouts", "tp=2"], "gradient norm is .*all gradients are equal"),
        ("gradients_doubled", ["--layouts", "dp=2"], "gradient of every parameter is 2 times the reference"),
        ("stale_weight", ["--layouts", "dp=2"], "from step 2: all was equal until step 1"),
        ("gather_lost", [*OVERLAPS, "--layouts", "own"], "from step 2: all was equal until step 1"),
        ("equal_dropout_seeds", ["--layouts", "tp=2"],
         "generator 'model-parallel-rng' of stage 0 has the same state on rank 0 and rank 1"),
        ("rope_of_one_stage", ["--layouts", "pp=2"], r"linear_qkv.weight is .* in 2 of 4 layers \(2, 3\), from step 1"),
    ],
)  # fmt: skip
def test_a_fault_in_megatron_is_named(fault: str, words: list[str], said: str, primus: Run, tmp_path: Path) -> None:
    found = verifier(primus, tmp_path)(EXAMPLE, *words, fault=fault, code=1)
    assert re.search(said, texts(found)), texts(found)


@pytest.mark.full
def test_layouts_of_a_dense_model_are_equal(primus: Run, tmp_path: Path) -> None:
    layouts = ("own", "repeat=1", "tp=2,sp=1", "pp=2,vpp=2", "dp=2")
    found = verifier(primus, tmp_path)(EXAMPLE, *OVERLAPS, "--layouts", *layouts)
    assert found["verdict"] == "equal", texts(found)
    assert [one["layout"] for one in found["layouts"]] == ["zero=1,dp=2", *layouts[1:]]


@pytest.mark.full
def test_a_default_that_needs_other_weights_is_not_tried_and_said_in_one_line(primus: Run, tmp_path: Path) -> None:
    found = verifier(primus, tmp_path)(EXAMPLE, "--settings")
    one = next(one for one in found["settings"] if one["name"] == "add_bias_linear")
    assert (one["status"], one["effect"].count("\n")) == ("not tried", 0)
    assert "linear_proj.bias" in one["effect"]
    assert Path(one["log"]).exists()
    assert found["verdict"] in ("dead settings", "no dead settings")


@pytest.mark.full
def test_a_router_bias_that_is_not_updated_is_named(primus: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "new.yaml")
    primus("config", "new", "mixtral_8x7B", "--backend", "megatron", "--gpu", "MI300X", "-o", path)
    words = ("moe_router_load_balancing_type=none", "moe_router_score_function=sigmoid",
             "moe_router_enable_expert_bias=true", "--layouts", "dp=2,ep=2")  # fmt: skip
    found = verifier(primus, tmp_path)(path, *words, fault="router_bias_not_updated", code=1)
    assert "router.expert_bias" in texts(found), texts(found)


@pytest.mark.full
def test_experts_on_two_ranks_are_equal(primus: Run, tmp_path: Path) -> None:
    """With the dispatcher of GPUs, which looks at streams."""
    path = str(tmp_path / "new.yaml")
    primus("config", "new", "mixtral_8x7B", "--backend", "megatron", "--gpu", "MI300X", "-o", path)
    found = verifier(primus, tmp_path)(path, "--layouts", "dp=2,ep=2")
    assert found["verdict"] == "equal", texts(found)
