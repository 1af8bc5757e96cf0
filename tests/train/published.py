"""The experiments that AMD publishes (AMD-AGI/Primus, commit fd1eeabb), as `published.tar.xz` has them with their licence."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import ClassVar

import pytest
from tests.conftest import ROOT

from primus_core.cli.main import main


class PublishedExperiments:
    """Which of them are accepted, and why the others are not, is what docs/coming-from.md says."""

    framework: ClassVar[str]

    def test_they_are_judged_as_the_documentation_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with tarfile.open(Path(__file__).with_name("published.tar.xz")) as archive:
            archive.extractall(tmp_path)  # ours; `filter` is newer than Python 3.11.0
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        main(["config", "validate", self.framework.lower(), "--markdown"])
        table = capsys.readouterr().out.strip()
        page = (ROOT / "docs/coming-from.md").read_text(encoding="utf-8")
        assert page.partition(f"\n{self.framework}:\n\n")[2].startswith(f"{table}\n"), table
