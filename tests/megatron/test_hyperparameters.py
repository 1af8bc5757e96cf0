"""Megatron's settings in the words that all backends share."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from tests.megatron.conftest import tiny
from tests.planning import Resolve


def said(resolve: Resolve, **changes: Any) -> dict[str, Any]:
    """The hyperparameters of a plan."""
    found: dict[str, Any] = resolve(tiny(**changes)).config["hyperparameters"]
    return found


def test_a_plan_says_its_hyperparameters(resolve: Resolve) -> None:
    found = said(resolve, adam_beta2=0.98, seed=7)
    expected = {
        "parameters": 262592, "hidden_size": 64, "seq_length": 32, "global_batch_size": 8, "micro_batch_size": 2,
        "steps": 4, "optimizer": "AdamW", "lr": 1e-2, "beta1": 0.9, "beta2": 0.98, "weight_decay": 0.01,
        "grad_clip": 1.0, "dtype": "fp32", "seed": 7, "text": None, "document_chars": None,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"lr_warmup_iters": 1, "min_lr": 1e-3, "lr_decay_style": "cosine"}, (1, 0, "cosine", 4, 1e-3)),
        ({"lr_warmup_fraction": 0.1, "lr_decay_iters": 20}, (2, 0, "linear", 20, 0.0)),
        ({"lr_decay_style": "WSD", "lr_wsd_decay_iters": 3, "lr_wsd_decay_style": "minus_sqrt"},
         (0, 1, "sqrt", 4, 0.0)),
    ],
)  # fmt: skip
def test_the_schedule_is_said_as_it_will_be(
    resolve: Resolve, schedule: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    found = said(resolve, **schedule)
    names = ("warmup_steps", "stable_steps", "decay", "schedule_steps", "min_lr")
    assert tuple(found[name] for name in names) == expected


def test_prepared_text_is_named(resolve: Resolve) -> None:
    data = {"text": "python-stdlib", "vocab_size": 512, "document_chars": 512}
    found = said(resolve, data=data, mock_data=None, vocab_size=None)
    assert (found["text"], found["document_chars"], found["vocab_size"]) == ("python-stdlib", 512, 512)
