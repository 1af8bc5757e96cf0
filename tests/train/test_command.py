"""The help of a training's commands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_command import complete


@pytest.mark.whole
@pytest.mark.full
def test_each_level_has_help_with_examples(primus: Run) -> None:
    for words in (
        ["direct", "--help"],
        ["direct", "--", "train", "--help"],
        ["plugins", "--help"],
        ["completion", "--help"],
    ):
        result = primus(*words)
        assert result.returncode == 0, words
        assert "examples:" in result.stdout, words
        assert "usage: primus" in result.stdout, words


@pytest.mark.whole
@pytest.mark.full
def test_plugins_lists_what_is_installed_also_as_json(primus: Run) -> None:
    rows = json.loads(primus("plugins", "--json").stdout)
    assert {"kind": "runtimes", "name": "direct", "status": "ok"}.items() <= next(
        r for r in rows if r["name"] == "direct"
    ).items()
    assert re.search(r"^tasks +train +primus-train \S+ +ok$", primus("plugins").stdout, re.M)


@pytest.mark.whole
@pytest.mark.full
def test_completion_follows_the_segments(primus: Run, project: Path) -> None:
    assert {"direct", "plugins", "completion"} <= set(complete(primus, ""))
    assert complete(primus, "dir") == ["direct"]
    assert "--single" in complete(primus, "direct", "--s")
    assert "train" in complete(primus, "direct", "--", "")
    assert complete(primus, "direct", "--", "analyze", "", cwd=project) == ["topology"]
    assert "--config" in complete(primus, "direct", "--numa", "--", "train", "pretrain", "--")
    assert complete(primus, "completion", "z") == ["zsh"]


@pytest.mark.whole
def test_the_bash_script_completes_in_a_real_bash(clean_environ: dict[str, str], tmp_path: Path) -> None:
    folder = Path(sys.executable).parent
    script = 'source <(primus completion bash); COMP_WORDS=(primus direct -- tr); COMP_CWORD=3; _primus; echo "${COMPREPLY[@]}"'
    environ = {**clean_environ, "PATH": f"{folder}:{clean_environ['PATH']}"}
    result = subprocess.run(
        ["bash", "-c", script], env=environ, cwd=tmp_path, text=True, capture_output=True, check=True
    )
    assert result.stdout.split() == ["train"]
