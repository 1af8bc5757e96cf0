"""MaxText's settings in the words that all backends share."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from primus_maxtext.backend import MAXTEXT
from primus_train.models import catalogue
from primus_train.testing import resolve

MODEL = {
    "decoder_block": "llama2", "base_emb_dim": 64, "base_mlp_dim": 192, "base_num_query_heads": 4,
    "base_num_kv_heads": 2, "head_dim": 16, "base_num_decoder_layers": 4, "mlp_activations": ["silu", "linear"],
}  # fmt: skip
TEXT = {"text": "python-stdlib", "vocab_size": 512, "document_chars": 512}


def said(gpus: int = 0, **changes: Any) -> dict[str, Any]:
    """The hyperparameters of a plan."""
    settings = {"model": MODEL, "data": TEXT, "steps": 20, "per_device_batch_size": 2, "max_target_length": 64}
    found: dict[str, Any] = resolve(MAXTEXT, {**settings, **changes}, gpus=gpus).config["hyperparameters"]
    return found


def test_a_plan_says_its_hyperparameters() -> None:
    found = said(dtype="float32", adam_b2=0.98, init_weights_seed=7, learning_rate=3e-3)
    expected = {
        "parameters": 262720, "hidden_size": 64, "seq_length": 64, "global_batch_size": 2, "micro_batch_size": 2,
        "steps": 20, "optimizer": "AdamW", "lr": 3e-3, "min_lr": 3e-4, "beta1": 0.9, "beta2": 0.98, "grad_clip": 1.0,
        "weight_decay": 0.1, "dtype": "fp32", "seed": 7, "text": "python-stdlib", "document_chars": 512,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({}, (2, 0, "cosine", 20)),
        ({"learning_rate_schedule_steps": 100}, (10, 0, "cosine", 100)),
        ({"lr_schedule_type": "wsd", "wsd_decay_steps_fraction": 0.2}, (2, 14, "linear", 20)),
    ],
)
def test_the_schedule_is_said_as_it_will_be(schedule: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = said(**schedule)
    assert tuple(found[name] for name in ("warmup_steps", "stable_steps", "decay", "schedule_steps")) == expected


def test_a_model_of_the_catalogue_is_said_with_its_number_of_parameters() -> None:
    model = catalogue.load()["llama3.1_8B"]
    found = said(gpus=8, model=MAXTEXT.translate(model), data={}, dataset_type="synthetic")
    assert (found["parameters"], found["num_layers"], found["global_batch_size"]) == (8030261248, 32, 16)
