"""A project with tasks of its own, to plan containers for. No engine is needed: those that start some are in `engines/`."""

from tests.core.conftest import project

__all__ = ["project"]
