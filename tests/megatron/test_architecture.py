"""Settings back to an architecture: what was translated comes back with the same parameters and work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.megatron.conftest import MODEL, tiny
from tests.planning import Resolve

from primus_core.config.document import Document
from primus_core.errors import ConfigError
from primus_megatron.architecture import architecture
from primus_megatron.backend import MEGATRON
from primus_megatron.own_settings import SETTINGS
from primus_megatron.schema import load, shipped
from primus_megatron.settings import Settings
from primus_megatron.translation import lacks, translate
from primus_train.backend import BackendPlan
from primus_train.models import catalogue
from primus_train.models.architecture import Architecture, Model
from primus_train.models.arithmetic import flops_per_token, parameters
from primus_train.testing import resolve as resolve_on

BUILT = [model for model in catalogue.load().values() if not lacks(model.facts)]
LLAMA = catalogue.load()["llama3.1_8B"]
SCHEMA = load(shipped()["0.19.2"])
STEP = {"mock_data": True, "seq_length": 4096, "micro_batch_size": 1, "train_iters": 1, "lr": 1e-3}


def settings_of(model: Model) -> dict[str, Any]:
    known = {*SCHEMA.options, *(own.name for own in SETTINGS)}
    return translate(model, SCHEMA.version, known)


def back(settings: dict[str, Any]) -> Architecture:
    found = architecture(Settings(Document(settings), SCHEMA))
    assert isinstance(found, Architecture), found
    return found


@pytest.mark.parametrize("model", BUILT, ids=lambda model: model.name)
@settings(max_examples=10)  # for each of the models
@given(length=st.integers(1, 300_000))
def test_there_and_back_a_model_has_the_same_parameters_and_flops(model: Model, length: int) -> None:
    found = back(settings_of(model))
    length = min(length, model.facts.attention_chunk or length)  # Megatron has such a model within a chunk only
    assert parameters(found) == parameters(model.facts)
    assert flops_per_token(found, length) == flops_per_token(model.facts, length)


def plan(*, gpus: int = 0, **changes: Any) -> BackendPlan:
    settings = {**STEP, "model": settings_of(LLAMA), **changes}
    return resolve_on(MEGATRON, settings, gpus=gpus)


def test_the_plan_has_the_work_of_a_token_as_the_catalogue_counts_it() -> None:
    assert plan().config["flops_per_token"] == sum(flops_per_token(LLAMA.facts, 4096).values())
    small = replace(LLAMA.facts, num_layers=4)
    assert plan(num_layers=4).config["flops_per_token"] == sum(flops_per_token(small, 4096).values())


def test_the_peak_is_that_of_the_gpu_in_the_data_type_in_use() -> None:
    assert plan(gpus=8, bf16=True).config["peak_tflops"] == 1307
    assert "no MFU: the peak of MI300X in fp32 is not known" in plan(gpus=8).notes
    on_cpu = plan(bf16=True)
    assert on_cpu.config["peak_tflops"] is None
    assert "MFU" not in " ".join(on_cpu.notes), "nobody expects one"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"swiglu": False}, "its MLPs have no gate"),
        ({"num_experts": 4, "moe_layer_freq": 2}, "its experts follow another pattern"),
        ({"moe_latent_size": 8, "num_experts": 4}, "it has moe_latent_size"),
        ({"window_size": "3,0", "window_attn_skip_freq": "[1,0,1,0]"}, "its windows follow a pattern"),
    ],
)
def test_what_the_catalogue_has_no_words_for_is_counted_by_megatron_and_said(
    resolve: Resolve, changes: dict[str, Any], why: str
) -> None:
    model = {**MODEL, **changes}
    plan = resolve(tiny(model=model))
    assert plan.config["flops_per_token"] is None
    assert f"FLOPs are counted by Megatron: {why}" in plan.notes


def test_without_a_vocab_size_the_note_says_what_to_set(resolve: Resolve) -> None:
    its_own = {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": "gpt2"}
    plan = resolve(tiny(**its_own, vocab_size=None, mock_vocab_size=None))
    [note] = [note for note in plan.notes if "FLOPs" in note]
    assert note.endswith("vocab_size is not set; for Primus to count them, set it to the tokenizer's number of tokens")
    plan = resolve(tiny(**its_own, vocab_size=50257, mock_vocab_size=None))
    assert plan.config["flops_per_token"]


def test_a_smaller_model_has_the_first_layers_of_a_pattern(resolve: Resolve) -> None:
    model = {**MODEL, "num_experts": 4, "moe_layer_freq": "[0]*1+[1]*7"}
    plan = resolve(tiny(model=model))
    assert plan.config["settings"]["moe_layer_freq"] == [0, 1, 1, 1]
    assert "moe_layer_freq describes 8 layers; the model uses the first 4" in plan.notes


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("[1]*3", "a pattern of 3 layers, and num_layers is 4"),
        ("[1]*x", "is '[1]*x'"),
        ("open('x')", "is \"open('x')\""),
    ],
)
def test_a_pattern_that_is_none_or_too_short_is_refused(resolve: Resolve, pattern: object, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(tiny(model={**MODEL, "num_experts": 4, "moe_layer_freq": pattern}))
    assert expected in str(caught.value)
