"""How `verify` makes small trainings of TorchTitan experiments."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from tests.templates import of

from primus_torchtitan import small_experts
from primus_torchtitan.verification import VERIFIER
from primus_verify.testing import VerifierConformance

MODELS = list(
    {
        template.model: f"template:{template.backend}/{template.model}/{template.gpu}" for template in of("torchtitan")
    }.values()
)


class TestTemplates(VerifierConformance):
    framework = "torchtitan"
    experiments: ClassVar[tuple[str, ...]] = (MODELS[0], *(one for one in MODELS if "deepseek_v2_lite" in one))


@pytest.mark.full
class TestAllTemplates(VerifierConformance):
    framework = "torchtitan"
    experiments: ClassVar[tuple[str, ...]] = tuple(MODELS)


def test_experts_are_taken_apart_and_what_is_no_weight_is_left_out() -> None:
    stored = {
        "layers.1.moe.routed_experts.inner_experts.w1_EFD": np.ones((2, 3, 4)),
        "optimizer.state.layers.1.moe.experts.w1.exp_avg": np.ones((2, 3, 4)),
        "layers.1.moe.shared_experts.w1.weight": np.ones((3, 4)),
        "optimizer.state.layers.1.moe.experts.w1.step": np.ones(()),
        "norm.weight": np.ones(4),
        "train_state.step": np.ones(()),
    }
    assert [(kind, name) for kind, name, _ in VERIFIER.tensors(stored)] == [
        ("weight", "layers.1.moe.routed_experts.inner_experts.0.w1_EFD"),
        ("weight", "layers.1.moe.routed_experts.inner_experts.1.w1_EFD"),
        ("first moment", "layers.1.moe.experts.0.w1"),
        ("first moment", "layers.1.moe.experts.1.w1"),
        ("weight", "layers.1.moe.shared_experts.w1.weight"),
        ("weight", "norm.weight"),
    ]


def test_a_rest_of_ranks_is_sharded_data_parallelism() -> None:
    assert VERIFIER.own({"parallelism": {"tensor_parallel_degree": 8}})["fsdp"] == 2


def test_a_pipeline_has_a_micro_batch_for_each_stage_and_sequences_are_cut_into_equal_pieces() -> None:
    pipeline = {"parallelism": {"pipeline_parallel_microbatch_size": 8}}
    small = VERIFIER.experiment(pipeline, shrink=False, layouts=[{"pp": 4, "fsdp": 2}, {"tp": 3}], device="cpu")
    assert small["training"]["global_batch_size"] == VERIFIER.batch([{"pp": 4, "fsdp": 2}]) == 16
    assert small["training"]["seq_len"] % 3 == 0
    assert small["parallelism"]["pipeline_parallel_microbatch_size"] == 2
    assert VERIFIER.settings({"pp": 4, "fsdp": 2}, 16)["training.local_batch_size"] == 8


@pytest.mark.parametrize(
    ("flavor", "layouts", "sizes"),
    [
        ("qwen3 30B-A3B", [{}], "layers=4 heads=4 groups=2 experts=4"),
        ("qwen3 30B-A3B", [{"fsdp": 8, "ep": 8}, {"pp": 3}], "layers=6 heads=4 groups=2 experts=8"),
        ("qwen3 30B-A3B", [{"tp": 4}, {"fsdp": 3, "ep": 3}], "layers=4 heads=8 groups=4 experts=4"),
        ("deepseek_v3 16B", [{"pp": 2}, {"tp": 8}], "layers=5 heads=8 groups=8 experts=4"),
        ("gpt_oss 20b", [{"tp": 8}, {"fsdp": 16, "ep": 16}], "layers=4 heads=64 groups=8 experts=16"),
    ],
)
def test_layouts_divide_a_small_model_with_experts_as_the_large_one(
    flavor: str, layouts: list[dict[str, int]], sizes: str
) -> None:
    family, _, name = flavor.partition(" ")
    model = {"family": family, "flavor": name}
    small = VERIFIER.experiment({"model": model}, shrink=True, layouts=layouts, device="cpu")["model"]
    assert small["flavor"] == f"{flavor} {sizes}"


@pytest.mark.full
@pytest.mark.torch
@pytest.mark.parametrize("flavor", ["qwen3 30B-A3B", "deepseek_v3 671B", "gpt_oss 20b"])
def test_what_is_checked_of_a_small_model_is_what_torchtitan_builds(flavor: str) -> None:
    pytest.importorskip("torchtitan", reason="torchtitan is not installed")
    from primus_torchtitan.generate_schema import sizes

    heads = "64 groups=8" if flavor.startswith("gpt_oss") else "8 groups=8"
    name = f"{flavor} layers=6 heads={heads} experts=8"
    built = sizes(small_experts.model_registry(name).model)
    assert small_experts.facts(name).items() <= built.items()


def test_what_no_axis_stands_for_is_named_and_defaults_are_not() -> None:
    """Also in names of TorchTitan 0.2."""
    settings = {
        "parallelism": {
            "data_parallel_replicate_degree": 2, "enable_async_tensor_parallel": True, "enable_sequence_parallel": False,
            "pipeline_parallel_schedule": "1F1B", "module_fqns_per_model_part": [["a"], ["b"]],
        },
        "activation_checkpoint": {"mode": "selective"},
        "compile": {"enable": True},
    }  # fmt: skip
    assert set(VERIFIER.unexpressed(settings)) == {
        "compile.enable_async_tensor_parallel=true", 'parallelism.module_fqns_per_model_part=[["a"], ["b"]]',
        "activation_checkpoint.mode=selective", "compile.enable=true",
    }  # fmt: skip
    assert VERIFIER.unexpressed({"activation_checkpoint": {"mode": "full"}, "compile": {"enable": False}}) == {}
    assert VERIFIER.own({"activation_checkpoint": {"mode": "full"}})["recompute"] == 1
