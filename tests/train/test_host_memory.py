"""A model that is larger than the memory of a machine without GPUs is refused before it fills that."""

from __future__ import annotations

import pytest

from primus_core.plan.plan import Requirement
from primus_core.requirements import is_here, missing
from primus_train import host_memory

EIGHT_BILLION = {"parameters": 8_030_000_000, "optimizer": "AdamW"}


@pytest.mark.parametrize(
    ("nodes", "optimizer", "expected"), [(1, "AdamW", "48.2 GB"), (4, "adam", "12.0 GB"), (1, "sgd", "16.1 GB")]
)
def test_the_weights_and_the_moments_of_adam_are_counted_for_each_node(
    nodes: int, optimizer: str, expected: str
) -> None:
    config = {"device": "cpu", "hyperparameters": {**EIGHT_BILLION, "optimizer": optimizer}}
    (needed,) = host_memory.required(config, nodes)
    assert (needed.kind, needed.name) == ("memory", expected)
    assert ("and optimizer" in needed.fix) == optimizer.lower().startswith("adam")


@pytest.mark.parametrize(
    "config", [{"device": "gpu", "hyperparameters": EIGHT_BILLION}, {"device": "cpu", "hyperparameters": {}}]
)
def test_a_training_on_gpus_and_a_model_that_nobody_knows_need_nothing(config: dict[str, object]) -> None:
    assert host_memory.required(config, 1) == ()


def test_a_machine_with_less_memory_is_told() -> None:
    assert is_here(Requirement("memory", "0.1 GB", ""), {})
    (error,) = missing([Requirement("memory", "1000000.0 GB", "use a smaller model")], {})
    assert str(error) == "this machine has less than 1000000.0 GB of memory\n  fix: use a smaller model"
