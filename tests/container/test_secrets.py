"""Secrets in the folder and the environment of a command that would start a container."""

from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_secret_roads import leaky, shows_no_kind

__all__ = ["leaky"]


@pytest.mark.parametrize("more", [(), ("--label", "LABEL")])
@pytest.mark.full
def test_no_kind_is_in_what_is_only_shown(primus: Run, leaky: Path, more: tuple[str, ...]) -> None:
    shows_no_kind(primus, leaky, "container", "--dry-run", "--image", "IMG", "--engine", "podman", *more, "--", "leak")
