"""Models of the catalogue in Megatron's words: what Megatron builds has the catalogue's number of parameters."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from tests.conftest import ROOT
from tests.megatron.conftest import Python, Train, losses, tiny
from tests.planning import Resolve

from primus_core.errors import RequestError
from primus_machine.packages import version_of
from primus_megatron.own_settings import SETTINGS
from primus_megatron.schema import load, shipped
from primus_megatron.translation import lacks, translate
from primus_train.models import catalogue
from primus_train.models.architecture import Model
from primus_train.models.arithmetic import parameters

MODELS = catalogue.load()
BUILT = {name: model for name, model in MODELS.items() if not lacks(model.facts)}
STEP = {"seq_length": 32, "micro_batch_size": 1, "train_iters": 1, "lr": 1e-3}
RUN = {"train_data_path": "web", **STEP}
NOT_PADDED = {"make_vocab_size_divisible_by": 1}


def translated(model: Model, version: str = "0.19.2") -> dict[str, Any]:
    known = {*load(shipped()[version]).options, *(own.name for own in SETTINGS)}
    return translate(model, version, known)


def table() -> str:
    """The refused models by what Megatron lacks for them, as the page has them."""
    rows: dict[str, list[str]] = {}
    for model in MODELS.values():
        if missing := lacks(model.facts):
            rows.setdefault("; ".join(missing), []).append(model.name)
    head = ["| model | what Megatron lacks for it |", "|---|---|"]
    return "\n".join(head + [f"| {', '.join(names)} | {missing} |" for missing, names in rows.items()])


def test_the_page_names_exactly_the_models_that_are_refused() -> None:
    assert table() in (ROOT / "docs/megatron.md").read_text()


def test_a_refusal_names_the_model_and_all_that_is_lacking() -> None:
    with pytest.raises(RequestError, match="Megatron cannot build gemma2_2B") as caught:
        translated(MODELS["gemma2_2B"])
    assert (
        "additional norms after attention and MLP; a soft cap on attention scores; a soft cap on logits"
        in caught.value.why
    )


@pytest.mark.parametrize("version", shipped())
def test_a_version_that_lacks_an_argument_is_refused_with_it(version: str) -> None:
    if version.startswith("0.19"):
        assert translated(MODELS["gpt_oss_20B"], version)["position_embedding_type"] == "yarn"
        return
    with pytest.raises(RequestError, match=f"Megatron {version} cannot build gpt_oss_20B") as caught:
        translated(MODELS["gpt_oss_20B"], version)
    assert "yarn_beta_fast" in caught.value.why


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama3.1_8B", {"use_rope_scaling": True, "rope_scaling_factor": 8.0, "num_query_groups": 8}),
        ("llama3.2_1B", {"rope_scaling_factor": 32.0, "untie_embeddings_and_output_weights": False}),
        ("qwen2.5_7B", {"add_qkv_bias": True, "add_bias_linear": False}),
        ("qwen3_32B", {"qk_layernorm": True, "kv_channels": 128}),
        ("deepseek_v2", {"moe_router_pre_softmax": True, "moe_router_group_topk": 3, "moe_layer_freq": "[0]*1+[1]*59"}),
        ("deepseek_v3", {"rope_type": "yarn", "rotary_scaling_factor": 40.0, "mtp_num_layers": 1, "q_lora_rank": 1536,
                         "moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": True}),
        ("llama4_scout_17B16E", {"qk_l2_norm": True, "no_rope_freq": 4, "rope_high_freq_factor": 1.0,
                                 "moe_apply_probs_on_input": True, "max_position_embeddings": 8192}),
        ("llama4_maverick_17B128E", {"moe_layer_freq": [0, 1] * 24, "moe_shared_expert_intermediate_size": 8192}),
        ("gpt_oss_20B", {"quick_geglu": True, "activation_func_clamp_value": 7.0, "softmax_type": "learnable",
                         "window_size": "127,0", "window_attn_skip_freq": 2, "add_bias_linear": True}),
    ],
)  # fmt: skip
def test_a_fact_becomes_the_argument_that_means_it(name: str, expected: dict[str, Any]) -> None:
    assert expected.items() <= translated(MODELS[name]).items()


def test_the_models_tokenizer_is_taken_where_the_data_need_one(resolve: Resolve) -> None:
    model = translated(MODELS["qwen2.5_7B"])
    plan = resolve(json.dumps({**RUN, "model": model}))
    assert "transformers" in {need.name for need in plan.requires}
    real = plan.config["settings"]
    assert (real["tokenizer_type"], real["tokenizer_model"]) == ("HuggingFaceTokenizer", "Qwen/Qwen2.5-7B")
    assert real["padded_vocab_size"] == 152064, "the tokenizer has fewer tokens than the model"
    mock = {**STEP, "mock_data": True, "model": model}
    settings = resolve(json.dumps(mock)).config["settings"]
    assert settings["tokenizer_type"] == "NullTokenizer"
    assert "tokenizer_model" not in settings
    text = {**STEP, "data": {"text": "python-stdlib", "vocab_size": 512}, "model": model}
    assert resolve(json.dumps(text)).config["settings"]["vocab_size"] in (511, 512), "the data have their own"


def test_a_setting_beside_the_model_wins(resolve: Resolve) -> None:
    model = translated(MODELS["llama3.1_8B"])
    changed = {**RUN, "model": model, "num_layers": 4, "norm_epsilon": 1e-6, "max_position_embeddings": 64}
    settings = resolve(json.dumps(changed)).config["settings"]
    assert (settings["num_layers"], settings["layernorm_epsilon"], settings["max_position_embeddings"]) == (4, 1e-6, 64)


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.skipif(not version_of("megatron-core"), reason="megatron-core is not installed")
def test_megatron_builds_every_model_with_the_catalogues_number_of_parameters(
    resolve: Resolve, python: Python, tmp_path: Path
) -> None:
    """To the unit, on a device without memory; the vocabulary is not padded here, which adds rows to the embedding."""
    settings = {name: resolve(json.dumps({**RUN, **NOT_PADDED, "model": translated(model, version_of("megatron-core"))}))
                for name, model in BUILT.items() if is_in(version_of("megatron-core"), model)}  # fmt: skip
    asked = {name: plan.config["settings"] for name, plan in settings.items()}
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    done = python("tests.megatron.count_parameters", str(tmp_path / "asked.json"))
    assert done.code == 0, done.err[-3000:]
    counts = {name: parameters(BUILT[name].facts) for name in settings}
    known = {name: {"total": count.total, "mtp": count.mtp} for name, count in counts.items()}
    assert json.loads(done.out.splitlines()[-1]) == known


SMALL = {"num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 96, "num_attention_heads": 4,
         "max_position_embeddings": 32, "vocab_size": 512}  # fmt: skip
LATENT = {"kv_lora_rank": 16, "qk_head_dim": 16, "qk_pos_emb_head_dim": 8, "v_head_dim": 16, "num_experts": 32,
          "moe_ffn_hidden_size": 32, "moe_shared_expert_intermediate_size": 32, "moe_layer_freq": "[0]*1+[1]*1"}  # fmt: skip
LLAMA4 = {"kv_channels": 16, "num_query_groups": 2, "num_layers": 4, "moe_ffn_hidden_size": 32,
          "moe_shared_expert_intermediate_size": 32}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "gpt_oss_20B": {
        "kv_channels": 16,
        "num_query_groups": 2,
        "num_experts": 4,
        "moe_ffn_hidden_size": 32,
        "window_size": "7,0",
    },
    "deepseek_v2_lite": LATENT,
    "deepseek_v3": {**LATENT, "q_lora_rank": 24, "moe_router_num_groups": 4, "moe_router_group_topk": 2},
    "llama4_scout_17B16E": {**LLAMA4, "num_experts": 4},
    "qwen2.5_7B": {"kv_channels": 16, "num_query_groups": 2},
}
"""What makes them small, and leaves of what kind they are."""


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.skipif(not version_of("megatron-core"), reason="megatron-core is not installed")
@pytest.mark.parametrize("name", KINDS)
def test_a_small_model_of_each_kind_trains(train: Train, name: str) -> None:
    if not is_in(version_of("megatron-core"), MODELS[name]):
        pytest.skip("this version of Megatron cannot build it, and says so")
    model = {**translated(MODELS[name], version_of("megatron-core")), **SMALL, **KINDS[name]}
    rows, log = train(tiny(model=model, vocab_size=None, log_interval=1, train_iters=8))
    assert losses(rows)[-1] < losses(rows)[0]
    assert "TFLOP/s/GPU: " in log


SCOUT = """
import json, sys
from tests.megatron.count_parameters import arguments, one_rank
one_rank("cpu")
from primus_megatron.model import model_provider
asked = json.load(open(sys.argv[1]))
arguments(asked["settings"])
model = model_provider(own=asked["own"])
layers = [layer.self_attention for layer in model.decoder.layers]
norms = [[type(layer.q_layernorm).__name__, type(layer.k_layernorm).__name__] for layer in layers]
print(json.dumps([norms, model.rotary_pos_emb.inv_freq.tolist()]))
"""


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.skipif(not version_of("megatron-core"), reason="megatron-core is not installed")
def test_llama_4_has_norms_where_it_has_a_rotary_embedding_and_stretches_that_by_its_own_factors(
    resolve: Resolve, python: Python, tmp_path: Path
) -> None:
    model = {**translated(MODELS["llama4_scout_17B16E"], version_of("megatron-core")), **SMALL, **LLAMA4}
    plan = resolve(json.dumps({**RUN, **NOT_PADDED, "model": {**model, "num_experts": 4, "kv_channels": 128}}))
    (tmp_path / "asked.json").write_text(json.dumps(plan.config))
    done = python(SCOUT, str(tmp_path / "asked.json"))
    assert done.code == 0, done.err[-3000:]
    norms, frequencies = json.loads(done.out.splitlines()[-1])
    assert norms == [*[["L2Norm", "L2Norm"]] * 3, ["IdentityOp", "IdentityOp"]]
    plain = [500000 ** (-2 * i / 128) for i in range(64)]
    slow = [2 * math.pi / frequency > 8192 for frequency in plain]
    assert any(slow)
    assert not all(slow)
    expected = [frequency / 16 if is_slow else frequency for frequency, is_slow in zip(plain, slow, strict=True)]
    assert frequencies == pytest.approx(expected, rel=1e-4), "Scout's factors leave nothing between slow and fast"


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.skipif(not version_of("megatron-core"), reason="megatron-core is not installed")
def test_a_tokenizer_with_more_tokens_than_the_model_is_refused_at_the_start(train: Train) -> None:
    with pytest.raises(AssertionError, match=r"the tokenizer has 6[0-9]+ tokens, but the model has 512"):
        train(tiny(tokenizer_type="NullTokenizer", vocab_size=600, padded_vocab_size=512))


def is_in(version: str, model: Model) -> bool:
    try:
        translated(model, version)
    except RequestError:
        return False
    return True
