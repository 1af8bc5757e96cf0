"""The names that others may import: adding or removing one is a decision, and shows here."""

from __future__ import annotations

import importlib

import pytest

PUBLIC = {
    "primus_train.backend": ["WANDB", "Backend", "BackendCall", "BackendPlan", "load_backend", "missing_backend"],
    "primus_train.models.architecture": [
        *("Architecture", "Entry", "LatentAttention", "Mixture", "Model", "RopeScaling", "Wrong", "impossible"),
    ],
    "primus_train.models.arithmetic": [
        *("Counts", "Matrix", "expert_layers", "flops_per_token", "full_attention_layers", "matrices"),
        *("matrices_of_training", "parameters"),
    ],
    "primus_train.models.catalogue": ["find", "folded", "load", "named"],
    "primus_train.kit.options": ["Checked", "Option", "check", "examine", "load"],
    "primus_train.kit.recorder": ["IN_A_ROW", "Recorder", "Step", "print_line"],
    "primus_train.kit.step_clock": ["Lap", "StepClock"],
    "primus_train.kit.work": ["ComputeCost", "planned", "planned_ranks"],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_these(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__all__ == PUBLIC[module]
    assert all(hasattr(found, name) for name in PUBLIC[module])
