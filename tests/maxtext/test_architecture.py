"""Settings back to an architecture: what was translated comes back with the same parameters and work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from hypothesis import given, settings
from hypothesis import strategies as st

from primus_core.config.document import Document
from primus_maxtext.architecture import architecture
from primus_maxtext.schema import load, shipped
from primus_maxtext.settings import Settings
from primus_maxtext.translation import lacks, translate
from primus_train.models import catalogue
from primus_train.models.architecture import Architecture, Model
from primus_train.models.arithmetic import flops_per_token, parameters

SCHEMA = load(list(shipped().values())[-1])
BUILT = [model for model in catalogue.load().values() if not lacks(model.facts)]
SAME = {"llama3.1-405b": "llama3.1_405B", "llama4-17b-16e": "llama4_scout_17B16E", "qwen3-30b-a3b": "qwen3_30B_A3B"}
"""Models that MaxText names, and the catalogue's of the same sizes."""


def back(given: dict[str, Any]) -> Architecture:
    found = architecture(Settings(Document(given), SCHEMA))
    assert isinstance(found, Architecture), found
    return found


@pytest.mark.parametrize("model", BUILT, ids=lambda model: model.name)
@settings(max_examples=10)  # for each of the models
@given(length=st.integers(1, 300_000))
def test_there_and_back_a_model_has_the_same_parameters_and_flops(model: Model, length: int) -> None:
    found = back(translate(model, SCHEMA))
    assert parameters(found) == parameters(model.facts)
    assert flops_per_token(found, length) == flops_per_token(model.facts, length)


@pytest.mark.parametrize("name", SAME)
def test_a_model_that_maxtext_names_is_known_by_its_own_file(name: str) -> None:
    facts = catalogue.load()[SAME[name]].facts
    found = back({"model_name": name})
    assert parameters(found) == parameters(facts)
    assert flops_per_token(found, 16384) == flops_per_token(facts, 16384)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"decoder_block": "gpt3"}, "its layers are those of 'gpt3'"),
        ({"mlp_activations": ["gelu"]}, "its MLPs have no gate"),
        ({"global_parameter_scale": 2, "mhc_expansion_rate": 4}, "it has mhc_expansion_rate, global_parameter_scale"),
        ({"engram_layers": [1, 4]}, "it has engram_layers"),
        ({"decoder_block": "gpt_oss", "base_num_decoder_layers": 3}, "its layers are not a multiple of 2"),
        ({"decoder_block": "gemma2"}, "it has norms after attention or MLP only"),
    ],
)
def test_what_the_catalogue_has_no_words_for_is_said(changes: dict[str, Any], why: str) -> None:
    assert architecture(Settings(Document(changes), SCHEMA)) == why


def test_fewer_layers_are_fewer_of_each() -> None:
    model = next(model for model in BUILT if model.name == "gemma2_9B")
    small = {**translate(model, SCHEMA), "base_num_decoder_layers": 2}
    assert back(small).num_layers == 4, "MaxText counts pairs"
    assert parameters(back(small)) == parameters(replace(model.facts, num_layers=4))
