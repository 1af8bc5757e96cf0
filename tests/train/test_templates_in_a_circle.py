"""Files that extend each other in a circle name no template without end."""

from __future__ import annotations

from pathlib import Path

from primus_train.templates import catalogue


def test_the_templates_of_a_circle_of_files_are_found_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n", encoding="utf-8")
    (tmp_path / "b.yaml").write_text("extends: [a.yaml, ./b.yaml]\n", encoding="utf-8")
    assert catalogue.extended(str(tmp_path / "a.yaml"), {}) == ()
