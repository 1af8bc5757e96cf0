"""The kernel's fixtures: a project with tasks of its own, and packages of other teams."""

from tests.core.conftest import install, project, third_party

__all__ = ["install", "project", "third_party"]
