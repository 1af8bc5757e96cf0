"""A training is started again from its snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_direct import metadata, run_of
from tests.core.test_replay import FAILED, everything, first, rewritten, spoken, trained, workplace

from primus_core.runs.saved import load
from primus_core.runs.snapshot_form import dump, parse_env_dump

__all__ = ["first", "spoken", "trained", "workplace"]


@pytest.mark.full
def test_a_training_run_comes_back_without_its_experiment(
    primus: Run, trained: Path, third_party: str, tmp_path: Path
) -> None:
    env = {"PYTHONPATH": third_party, "MY_KEY": "another-key-now", "API_KEY": "and-the-variable", "STEEPNESS": "9"}
    for words in (("replay", "down"), ("direct", "--", "train", "pretrain", "--replay", str(trained)),
                  ("direct", "--", "train", "pretrain", "--replay", "output/down")):  # fmt: skip
        result = primus(*words, env=env)
        assert result.returncode == 0, result.stderr
        assert "equal     plan, config" in result.stderr
        new = run_of(tmp_path, "down")
        assert metadata(new)["parent"]["run_id"] != new.name
        assert load(str(new)).environment["STEEPNESS"] == "3"
        assert (new / "metrics.jsonl").read_text() == (trained / "metrics.jsonl").read_text()
        assert "programs.torchrun" not in (new / "plan.json").read_text(), "it was a --single run"


@pytest.mark.full
def test_the_replay_finds_a_backend_where_the_run_found_it(primus: Run, trained: Path) -> None:
    result = primus("replay", str(trained), env={"API_KEY": "and-the-variable"})
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("direct", "--", "train", "pretrain", "--replay", "RUN", "steps=9"),
            "start its command with them: `primus runs show ",
        ),
        (
            ("direct", "--", "train", "pretrain", "--replay", "RUN", "--config", "down.yaml"),
            "a replay takes no settings",
        ),
        (("replay", "RUN", "steps=9"), "steps=9"),
        (("replay",), "RUN"),
        (("replay", "nothing"), "there is no run 'nothing'"),
        (("replay", "RUN", "--json"), "--json requires --check or --dry-run"),
        (("replay", "RUN", "--chekc"), "--check"),
        (("replay", "--config", "x", "RUN"), "a replay takes no --config"),
    ],
)
@pytest.mark.full
def test_a_wrong_request_is_refused_before_anything(
    primus: Run, trained: Path, third_party: str, words: tuple[str, ...], says: str
) -> None:
    env = {"PYTHONPATH": third_party, "API_KEY": "and-the-variable"}
    before = everything(trained.parent)
    result = primus(*(str(trained) if word == "RUN" else word for word in words), env=env)
    assert result.returncode == 2, result.stderr
    assert says in result.stderr
    assert everything(trained.parent) == before


@pytest.mark.full
def test_a_run_of_another_task_is_refused(primus: Run, first: Path, workplace: Path) -> None:
    result = primus("direct", "--", "train", "pretrain", "--replay", str(first), cwd=workplace)
    assert result.returncode == 2
    assert f"{first} is a run of 'speak', not of 'train'" in result.stderr
    assert f"fix: primus replay {first}\n" in result.stderr
    checked = primus("direct", "--", "train", "pretrain", "--replay", str(first), "--check", cwd=workplace)
    assert f"fix: primus replay {first} --check\n" in checked.stderr


@pytest.mark.full
def test_a_secret_of_the_experiment_is_asked_for_by_its_variable(primus: Run, trained: Path, third_party: str) -> None:
    result = primus("replay", str(trained), env={"PYTHONPATH": third_party, "MY_KEY": "set-again-123"})
    assert result.returncode == FAILED
    assert "secret: API_KEY" in result.stderr


@pytest.mark.full
def test_a_missing_backend_blocks_even_when_forced_it_says_why(
    primus: Run, trained: Path, third_party: str, tmp_path: Path
) -> None:
    environ = parse_env_dump((trained / "env/primus_env_dump.txt").read_text()) | {"PYTHONPATH": "/nowhere"}
    rewritten(trained, {"env/primus_env_dump.txt": dump(environ)})
    before = everything(trained.parent)
    result = primus("replay", str(trained), env={"API_KEY": "and-the-variable"})
    assert result.returncode == FAILED
    assert "blocking  backend: countdown: acme_primus.countdown → not installed" in result.stderr
    assert everything(trained.parent) == before
    assert primus("replay", str(trained), "--force", env={"API_KEY": "and-the-variable"}).returncode == 1


def test_a_folder_that_is_no_run_is_a_wrong_request(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "stuff").mkdir()
    result = primus("direct", "--", "train", "pretrain", "--replay", "stuff")
    assert result.returncode == 2
    assert "there is no run 'stuff'" in result.stderr


@pytest.mark.full
def test_the_run_to_replay_may_be_named_as_for_the_command(primus: Run, trained: Path, third_party: str) -> None:
    env = {"PYTHONPATH": third_party, "MY_KEY": "another-key-now", "API_KEY": "and-the-variable", "STEEPNESS": "9"}
    for name in ("latest", "down", trained.name):
        result = primus("direct", "--", "train", "pretrain", "--replay", name, "--check", env=env)
        assert result.returncode == 0, result.stderr
        assert trained.name in result.stdout
