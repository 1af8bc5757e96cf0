"""The experiments that AMD publishes (AMD-AGI/Primus, commit fd1eeabb), as `published.tar.xz` has them with their licence."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from tests.conftest import ROOT

from primus_core.cli.main import main


def judged(framework: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What `config validate` says of those of a framework, as a table."""
    with tarfile.open(Path(__file__).with_name("published.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    main(["config", "validate", framework, "--markdown"])
    return capsys.readouterr().out


def documented(framework: str) -> str:
    """What docs/coming-from.md says of them."""
    page = (ROOT / "docs/coming-from.md").read_text(encoding="utf-8")
    name = {"megatron": "Megatron", "torchtitan": "TorchTitan", "maxtext": "MaxText"}[framework]
    return page.partition(f"\n{name}:\n\n")[2]
