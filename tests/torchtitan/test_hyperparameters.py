"""TorchTitan's settings in the words that all backends share."""

from __future__ import annotations

from typing import Any

import pytest
from tests.planning import Resolve
from tests.torchtitan.conftest import MODEL


def said(resolve: Resolve, text: str = "", **call: Any) -> dict[str, Any]:
    """The hyperparameters of a plan."""
    found: dict[str, Any] = resolve(MODEL + text, **call).config["hyperparameters"]
    return found


def test_a_plan_says_its_hyperparameters(resolve: Resolve) -> None:
    found = said(resolve, "optimizer: {lr: 3e-3, beta2: 0.98}\ndebug: {seed: 7}\n")
    expected = {
        "parameters": 311872, "hidden_size": 64, "seq_length": 64, "global_batch_size": 2, "micro_batch_size": 2,
        "steps": 4, "optimizer": "AdamW", "lr": 3e-3, "beta1": 0.9, "beta2": 0.98, "weight_decay": 0.1,
        "grad_clip": 1.0, "dtype": "fp32", "seed": 7, "text": "python-stdlib", "document_chars": 0,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("{warmup_steps: 1, min_lr_factor: 0.1}", (1, 0, "linear", 4, 8e-5)),
        ("{warmup_steps: 0, decay_ratio: 0.5, decay_type: sqrt}", (0, 2, "sqrt", 4, 0.0)),
        ("{warmup_steps: 10, total_steps: 20, decay_ratio: 0.8}", (10, 0, "linear", 20, 0.0)),
        ("{warmup_steps: 200}", (4, 0, "linear", 4, 0.0)),
    ],
)
def test_the_schedule_is_said_as_it_will_be(resolve: Resolve, schedule: str, expected: tuple[Any, ...]) -> None:
    found = said(resolve, f"lr_scheduler: {schedule}\n")
    names = ("warmup_steps", "stable_steps", "decay", "schedule_steps", "min_lr")
    assert tuple(found[name] for name in names) == expected


def test_groups_of_parameters_have_no_common_learning_rate(resolve: Resolve) -> None:
    group = "{pattern: %s, optimizer_name: AdamW, optimizer_kwargs: {lr: 1e-3}}"
    alone = said(resolve, f"optimizer: {{param_groups: [{group % '.*'}]}}\n")
    assert (alone["lr"], alone["beta1"], alone["optimizer"]) == (1e-3, None, "AdamW")
    several = said(resolve, f"optimizer: {{param_groups: [{group % 'norm'}, {group % '.*'}]}}\n")
    assert (several["lr"], several["min_lr"], several["optimizer"]) == (None, None, None)


def test_ranks_make_the_global_batch_larger(resolve: Resolve) -> None:
    assert said(resolve, ranks=4)["global_batch_size"] == 8
