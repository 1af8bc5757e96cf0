"""The names that others may import: adding or removing one is a decision, and shows here."""

from __future__ import annotations

import importlib

import pytest

PUBLIC = {
    "primus_core": ["get_logger", "hookimpl", "register_subcommand", "register_task"],
    "primus_core.training.backend": ["WANDB", "Backend", "BackendCall", "BackendPlan", "load_backend"],
    "primus_core.plugins.contracts": [
        *(
            "Cleaning",
            "Command",
            "Elsewhere",
            "OuterCall",
            "OuterPlan",
            "OuterRuntime",
            "Runtime",
            "RuntimeCall",
            "RuntimePlan",
        ),
        *("Scope", "Task", "TaskCall", "TaskPlan"),
    ],
    "primus_core.hooks.follow": ["Follower"],
    "primus_core.hooks.specs": ["FailureInfo", "Result", "RunInfo", "StepMetrics", "StopRun", "hookimpl", "hookspec"],
    "primus_core.journal.metrics": ["Metrics", "OnNonFinite", "Validation", "append", "is_step", "log_line", "tell"],
    "primus_core.models.architecture": [
        *("Architecture", "Entry", "LatentAttention", "Mixture", "Model", "RopeScaling", "Wrong", "impossible"),
    ],
    "primus_core.models.arithmetic": [
        *("Counts", "Matrix", "expert_layers", "flops_per_token", "full_attention_layers", "matrices", "parameters"),
    ],
    "primus_core.models.catalogue": ["find", "load"],
    "primus_core.contracts.launcher": ["LaunchCall", "LaunchPlan", "Launcher", "Signalled"],
    "primus_core.contracts.scheduler": ["FORGOTTEN", "Job", "Phase", "Printed", "Scheduler", "Target"],
    "primus_core.training.options": ["Checked", "Option", "check", "examine", "load"],
    "primus_core.training.recorder": ["IN_A_ROW", "Recorder", "Step", "print_line"],
    "primus_core.training.step_clock": ["Lap", "StepClock"],
    "primus_core.training.work": ["Work", "planned"],
    "primus_core.testing": ["BackendConformance", "capture_logs", "document_of", "facts_of", "resolve"],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_these(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__all__ == PUBLIC[module]
    assert all(hasattr(found, name) for name in PUBLIC[module])
