"""What a check quotes of a machine may hold a secret; no report has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.machine.secret_kinds import KINDS, found_in

from primus_preflight import judging
from primus_preflight.checks.findings import Finding
from primus_preflight.verdict.cluster import judge
from primus_preflight.verdict.node_report import NodeReport, write

TEXTS = "; ".join(text for text, _ in KINDS.values())
REPORT = NodeReport("n1", (Finding("host.disk", "", "fail", TEXTS, why=TEXTS),), node_rank=0, time=1.0)


def test_no_kind_of_secret_is_in_a_nodes_report(tmp_path: Path) -> None:
    text = Path(write(str(tmp_path), REPORT)).read_text()
    assert not found_in(text)
    assert "<secret>" in text


@pytest.mark.parametrize("name", ["report.html", "report.md", "report.json"])
def test_no_kind_of_secret_is_in_the_report_on_all_nodes(tmp_path: Path, name: str) -> None:
    judging._write_report(str(tmp_path / name), judge([REPORT]))
    text = (tmp_path / name).read_text()
    assert not found_in(text)
    assert "secret" in text
