"""The errors that Primus shows a person, under the name by which plugins import them."""

from primus_machine.errors import (
    AlreadyRefused,
    ConfigError,
    MachineError,
    Mistakes,
    PrimusError,
    RequestError,
    RunDirectoryTaken,
    SeveralErrors,
    TrainingError,
    nearest,
    suggestion,
)

__all__ = [
    "AlreadyRefused",
    "ConfigError",
    "MachineError",
    "Mistakes",
    "PrimusError",
    "RequestError",
    "RunDirectoryTaken",
    "SeveralErrors",
    "TrainingError",
    "nearest",
    "suggestion",
]
