"""The commands of docs/report.md, on a run; what it says of names is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.conftest import ROOT, Run
from tests.report.runs import three_attempts

from primus_report.figures.goodput import CAUSES

PAGE = (ROOT / "docs/report.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^ {4}(primus report [^|\n]*)", PAGE, re.M)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.full
def test_a_command_of_the_page_works(command: str, primus: Run, tmp_path: Path) -> None:
    names = ["small_2026_11_21_101526", "other_2026_11_21_101526"]
    for name in names:
        three_attempts(tmp_path / "output", name=name)
    for name in names:
        command = command.replace("<RUN>", name, 1).replace("<DIR>", "output")
    done = primus(*shlex.split(command)[1:])
    assert done.returncode == 0, done.stderr


def test_the_page_has_every_cause_of_lost_time() -> None:
    assert [cause for cause in CAUSES if f"`{cause}`" not in PAGE] == ["useful"]
