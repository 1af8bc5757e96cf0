"""The kernel's fixtures: a project with tasks of its own."""

from tests.core.conftest import project

__all__ = ["project"]
