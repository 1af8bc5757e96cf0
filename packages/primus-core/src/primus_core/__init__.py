"""Primus: one command between a person and a large-model training run. This is its kernel.

Names load on first use, since `primus --help` must not pay for what it does not need.
"""

TYPE_CHECKING = False  # `typing` costs a quarter of `primus --version`; type checkers know the name
if TYPE_CHECKING:
    from typing import Any

    from primus_core.hooks.specs import hookimpl
    from primus_core.logger.logger import get_logger
    from primus_core.plugins.dropped_in import register_task
    from primus_core.plugins.dropped_in import register_task as register_subcommand

__all__ = ["get_logger", "hookimpl", "register_subcommand", "register_task"]


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'primus_core' has no attribute '{name}'")
    module = {"hookimpl": "hooks.specs", "get_logger": "logger.logger"}.get(name, "plugins.dropped_in")
    return getattr(import_module(f"primus_core.{module}"), name.replace("subcommand", "task"))
