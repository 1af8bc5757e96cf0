"""No secret of a training leaves by an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_secret_roads import TOKEN
from tests.machine.secret_kinds import found_in


@pytest.mark.parametrize(
    "words", [("runs", "show", TOKEN), ("direct", "--", TOKEN), ("direct", f"--{TOKEN}"), ("config", "show", TOKEN)]
)
def test_an_error_quotes_what_was_typed_without_the_secret(primus: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    result = primus(*words, cwd=tmp_path)
    assert result.returncode == 2
    assert "<secret>" in result.stderr
    assert not found_in(result.stdout + result.stderr)
