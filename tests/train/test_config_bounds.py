"""An experiment costs no more time and memory than a configuration may."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_config_bounds import ALIASES


@pytest.mark.parametrize("option", ["--config", "--env"])
def test_the_command_refuses_it_in_little_time_and_memory(
    clean_environ: dict[str, str], tmp_path: Path, option: str
) -> None:
    (tmp_path / "exp.yaml").write_text(f"exp_name: x\n{ALIASES}")
    if option == "--env":  # the system config is read first
        (tmp_path / "exp.yaml").rename(tmp_path / "primus.yaml")
    command = [str(Path(sys.executable).with_name("primus")), *["direct", "--single", "--dry-run", "--"]]
    command += ["train", "pretrain", "--config", "exp.yaml"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    limited = ["sh", "-c", 'ulimit -v 400000 && exec "$@"', "sh", *command]  # kB of addresses, libraries included
    result = subprocess.run(limited, env=clean_environ, cwd=tmp_path, text=True, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == 2
    assert "too many values" in result.stderr
    assert ".yaml:" in result.stderr
    assert after.ru_utime - before.ru_utime < 2


@pytest.mark.parametrize("words", ["config show", "direct --dry-run -- train pretrain --config"])
@pytest.mark.full
def test_a_pipe_is_refused_and_not_waited_for(primus: Run, tmp_path: Path, words: str) -> None:
    os.mkfifo(tmp_path / "exp.yaml")
    done = primus(*words.split(), "exp.yaml", cwd=tmp_path)
    assert (done.returncode, "exp.yaml: it is not a regular file" in done.stderr) == (2, True)
    misspelt = primus(*words.split(), "gone/epx.yaml", cwd=tmp_path)
    assert (misspelt.returncode, "there is no file" in misspelt.stderr) == (2, True), "nor does the search wait"
