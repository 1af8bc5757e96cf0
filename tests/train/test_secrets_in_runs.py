"""No secret of an experiment is in any file of its run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_secrets_in_runs import EXPERIMENT, PLANTED, VALUE, everything, leaks, planted

__all__ = ["planted"]


@pytest.mark.parametrize("value", [VALUE, 'q"uo\\te-9f'])
@pytest.mark.full
def test_a_secret_in_an_experiments_env_is_in_no_file_of_the_run(
    primus: Run, third_party: str, tmp_path: Path, value: str
) -> None:
    (tmp_path / "exp.yaml").write_text(EXPERIMENT % f"'{value}'")
    env = {"PYTHONPATH": third_party, "HF_TOKEN": "hidden-77aa"}
    words = ("direct", "--single", "--", "train", "pretrain", "--config", "exp.yaml")
    result = primus(*words, env=env)
    assert result.returncode == 0, result.stderr
    (tmp_path / "exp.yaml").unlink()
    text = everything(result, tmp_path)
    for secret in (value, "hidden-77aa", value.replace("\\", "\\\\").replace('"', '\\"')):
        assert secret not in text


@pytest.mark.parametrize("end", ["exit 7", "echo extra.stesp=1"])
@pytest.mark.full
def test_a_secret_that_a_hook_says_before_it_all_ends_badly_is_found_nowhere(
    primus: Run, third_party: str, planted: Path, end: str
) -> None:
    (planted / "exp.yaml").write_text(EXPERIMENT.replace("%s", "none") + f"# {PLANTED['config']}\n")
    (planted / "hooks/2.py").unlink()
    (planted / "hooks/1.sh").write_text(
        f"V={PLANTED['hook']}\necho env.HOOK_TOKEN=$V\necho env.CONFIG_TOKEN={PLANTED['config']}\n"
        f"echo extra.loss.start=$V\n{end}\n"
    )
    words = ("direct", "--debug", "--single", "--", "train", "pretrain", "--config", "exp.yaml")
    env = {"PYTHONPATH": third_party, "HF_TOKEN": PLANTED["environment"]}
    known = ("environment", "hook", "config")
    result = primus(*words, cwd=planted, env=env)
    assert result.returncode == (7 if end == "exit 7" else 2), result.stderr
    assert not leaks(result.stdout + result.stderr, *known)
    for path in (planted / "output/down").resolve().rglob("*"):
        assert not path.is_file() or not leaks(path.read_text(errors="replace"), *known), path.relative_to(planted)


@pytest.mark.parametrize(
    "place", ["hf_token: %s", "hub: {hf_token: %s}", "modules: {pre_trainer: {overrides: {hf_token: %s}}}"]
)
@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--debug",)])
def test_a_secret_written_into_the_config_is_refused_and_not_repeated(
    primus: Run, third_party: str, tmp_path: Path, place: str, options: tuple[str, ...]
) -> None:
    (tmp_path / "base.yaml").write_text(EXPERIMENT % "none")
    (tmp_path / "exp.yaml").write_text("extends: base.yaml\n" + place % PLANTED["config"] + "\n")
    words = ("direct", "--single", *options, "--", "train", "pretrain", "--config", "exp.yaml")
    result = primus(*words, env={"PYTHONPATH": third_party, "HF_TOKEN": "hidden-77aa"})
    assert result.returncode == 2
    assert "exp.yaml:2" in result.stderr
    assert "hf_token" in result.stderr or "hub" in result.stderr
    assert not leaks(result.stdout + result.stderr)
    assert not (tmp_path / "output").exists()
