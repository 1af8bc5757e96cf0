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
    if name == "hookimpl":
        from primus_core.hooks.specs import hookimpl

        return hookimpl
    if name == "get_logger":
        from primus_core.logger.logger import get_logger

        return get_logger
    if name in __all__:
        from primus_core.plugins.dropped_in import register_task

        return register_task
    raise AttributeError(f"module 'primus_core' has no attribute '{name}'")
