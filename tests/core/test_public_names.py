"""The names that others may import: adding or removing one is a decision, and shows here."""

from __future__ import annotations

import importlib

import pytest

PUBLIC = {
    "primus_core": ["get_logger", "hookimpl", "register_subcommand", "register_task"],
    "primus_core.plugins.contracts": [
        *(
            "Cleaning",
            "Command",
            "ConfigActions",
            "Described",
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
    "primus_core.errors": [
        *("AlreadyRefused", "ConfigError", "MachineError", "Mistakes", "PrimusError", "RequestError"),
        *("RunDirectoryTaken", "SeveralErrors", "TrainingError", "nearest", "suggestion"),
    ],
    "primus_core.hooks.specs": [
        *("Event", "FailureInfo", "HangInfo", "Ranks", "Result", "RunInfo", "StepMetrics", "StopRun"),
        *("hookimpl", "hookspec"),
    ],
    "primus_core.journal.metrics": ["Metrics", "OnNonFinite", "Validation", "append", "is_step", "log_line"],
    "primus_core.contracts.launcher": ["LaunchCall", "LaunchPlan", "Launcher", "Signalled"],
    "primus_core.contracts.scheduler": ["FORGOTTEN", "Job", "Phase", "Printed", "Scheduler", "Target"],
    "primus_core.testing": ["capture_logs", "document_of", "facts_of"],
}


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_these(module: str) -> None:
    found = importlib.import_module(module)
    assert found.__all__ == PUBLIC[module]
    assert all(hasattr(found, name) for name in PUBLIC[module])
