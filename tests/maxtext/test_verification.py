"""How `verify` makes small trainings of MaxText experiments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tests.conftest import ROOT, Run
from tests.templates import of
from tests.verify.trials import texts, verifier

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from primus_maxtext.verification import VERIFIER
from primus_train.models.architecture import Architecture, LatentAttention, Mixture
from primus_verify.testing import VerifierConformance

MODELS = list(
    {
        template.model: f"template:{template.backend}/{template.model}/{template.gpu}" for template in of("maxtext")
    }.values()
)
EXAMPLE = str(ROOT / "examples/maxtext/quickstart-cpu.yaml")


class TestTemplates(VerifierConformance):
    framework = "maxtext"
    experiments: ClassVar[tuple[str, ...]] = (MODELS[0], *(one for one in MODELS if "deepseek_v2_lite" in one))


@pytest.mark.full
class TestAllTemplates(VerifierConformance):
    framework = "maxtext"
    experiments: ClassVar[tuple[str, ...]] = tuple(MODELS)


def test_layers_are_taken_apart_along_their_axis() -> None:
    stored = {
        "params.params.decoder.layers.mlp.wo.kernel": np.ones((4, 2, 3)),
        "params.params.decoder.moe_layers.moe_block.gate.kernel": np.ones((4, 1, 3)),
        "opt_state.0.mu.params.decoder.decoder_norm.scale": np.ones(4),
        "opt_state.0.count": np.ones(()),
        "nnx_aux.model.decoder.rngs.params.count": np.ones(()),
    }
    found = [(kind, name, array.shape) for kind, name, array in VERIFIER.tensors(stored)]
    assert found == [
        ("weight", "decoder.layers.0.mlp.wo.kernel", (4, 3)),
        ("weight", "decoder.layers.1.mlp.wo.kernel", (4, 3)),
        ("weight", "decoder.moe_layers.0.moe_block.gate.kernel", (4, 3)),
        ("first moment", "decoder.decoder_norm.scale", (4,)),
    ]


def test_weights_of_experts_and_latent_attention_have_hugging_faces_names() -> None:
    """Layers with experts are counted after the dense ones."""
    model = Architecture(
        num_layers=2, hidden_size=8, ffn_hidden_size=12, num_attention_heads=2, num_kv_heads=2, head_dim=6,
        vocab_size=16, max_position_embeddings=64, rope_theta=1e4, norm_eps=1e-5, tie_embeddings=False,
        moe=Mixture(num_experts=2, topk=1, moe_ffn_hidden_size=4, first_k_dense=1),
        mla=LatentAttention(kv_lora_rank=4, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=4),
    )  # fmt: skip
    found = {
        name: array.shape
        for weight, shape in {
            "moe_layers.0.DeepSeekMoeBlock_0.MoeBlock_0.experts.1.wi_0": (8, 4),
            "moe_layers.0.DeepSeekMoeBlock_0.MoeBlock_0.gate.kernel": (8, 2),
            "moe_layers.0.DeepSeekMoeBlock_0.shared_experts.wo.kernel": (4, 8),
            "moe_layers.0.self_attention.query.kernel": (8, 2, 6), "dense_layers.0.mlp.wi_1.kernel": (8, 12),
            "dense_layers.0.self_attention.wkv_b.kernel": (4, 2, 8), "layers.0.moe_block.experts.0.wo": (4, 8),
        }.items()
        for name, array, _ in VERIFIER.neutral(f"decoder.{weight}", np.ones(shape), model)
    }  # fmt: skip
    assert found == {
        "layers.1.mlp.experts.1.gate_proj.weight": (4, 8), "layers.1.mlp.gate.weight": (2, 8),
        "layers.1.mlp.shared_experts.down_proj.weight": (8, 4), "layers.1.self_attn.q_proj.weight": (12, 8),
        "layers.0.mlp.up_proj.weight": (12, 8), "layers.0.self_attn.kv_b_proj.weight": (16, 4),
        "layers.0.mlp.experts.0.down_proj.weight": (8, 4),
    }  # fmt: skip


def test_each_device_has_whole_sequences_of_a_micro_batch() -> None:
    batch = VERIFIER.batch([{"dp": 3}, {"fsdp": 2, "mbs": 1}])
    assert batch == 24
    assert VERIFIER.settings({"dp": 3}, batch)["per_device_batch_size"] == 8
    found = VERIFIER.settings({"fsdp": 2, "mbs": 1}, batch)
    assert (found["gradient_accumulation_steps"], found["per_device_batch_size"]) == (12, 1)
    with pytest.raises(ValueError, match="needs a multiple of 32 sequences"):
        VERIFIER.settings({"mbs": 16}, 24)


def test_a_micro_batch_is_never_the_whole_batch() -> None:
    for size in (2, 3, 5, 16):
        layout = {"dp": 2, "fsdp": 2, "mbs": size}
        assert VERIFIER.settings(layout, VERIFIER.batch([layout]))["gradient_accumulation_steps"] >= 2


def test_what_no_axis_stands_for_is_named_and_a_rest_of_devices_is_sharded_data_parallelism() -> None:
    settings = {
        "ici_pipeline_parallelism": 2, "ici_tensor_sequence_parallelism": 2, "ici_fsdp_transpose_parallelism": 1,
        "dcn_fsdp_parallelism": 2, "remat_policy": "full", "shard_optimizer_over_data": True,
        "gradient_accumulation_steps": 4,
    }  # fmt: skip
    assert set(VERIFIER.unexpressed(settings)) == {
        "ici_pipeline_parallelism=2", "ici_tensor_sequence_parallelism=2", "shard_optimizer_over_data=true",
    }  # fmt: skip
    assert VERIFIER.own(settings) == {"dp": 1, "fsdp": 4, "tp": 1, "cp": 1, "ep": 1, "mbs": 2}
    assert VERIFIER.own({"ici_fsdp_parallelism": 1})["fsdp"] == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "layout", "said"),
    [
        ("maxtext_doubled", "fsdp=2", "gradient of every parameter is 2 times the reference, from step 1"),
        ("maxtext_norms_halved", "tp=2", "gradient of .*scale is 0.50 of the reference.*tensor parallelism"),
        ("maxtext_not_a_number", "dp=2", "gradient of decoder.logits_dense.kernel is not finite"),
        ("maxtext_first_micro_batch", "mbs=2", "loss is .*, from step 1"),
    ],
)
def test_a_fault_in_maxtext_is_named(fault: str, layout: str, said: str, primus: Run, tmp_path: Path) -> None:
    found = verifier(primus, tmp_path)(EXAMPLE, "--layouts", layout, fault=fault, code=1)
    assert re.search(said, texts(found)), texts(found)


@pytest.mark.full
def test_layouts_of_a_dense_model_are_equal(primus: Run, tmp_path: Path) -> None:
    found = verifier(primus, tmp_path)(EXAMPLE, "--layouts", "repeat=1", "fsdp=2", "tp=2", "mbs=4")
    assert found["verdict"] == "equal", texts(found)
