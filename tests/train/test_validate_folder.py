"""`primus config validate DIR` judges each experiment in a folder, and groups what it refuses by reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.conftest import Run

GOOD = (
    "exp_name: {}\nmodules:\n  pre_trainer:\n    framework: countdown\n    model: {{}}\n    overrides: {{steps: 3}}\n"
)


@pytest.fixture
def acme(third_party: str) -> dict[str, str]:
    """An environment with a backend of another team."""
    return {"PYTHONPATH": third_party}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three right experiments for two GPUs, two with one mistake, and a file that is not an experiment."""
    found = tmp_path / "experiments"
    for name in ("MI300X/a", "MI300X/b", "MI355X/c", "MI355X/d", "e"):
        path = found / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(GOOD.format(path.stem))
    for name in ("MI300X/b", "MI355X/d"):
        path = found / f"{name}.yaml"
        path.write_text(path.read_text().replace("steps: 3", "stpes: 3"))
    (found / "other.yaml").write_text("matchers: {}\nrecipes: {}\n")
    (found / "primus.yaml").write_text("workspace: output\n")
    return found


def test_a_folder_is_judged_each_file_for_the_gpu_that_its_folder_names(
    primus: Run, acme: dict[str, str], folder: Path
) -> None:
    found = primus("config", "validate", str(folder), "--json", env=acme)
    assert found.returncode == 2
    report = json.loads(found.stdout)
    assert {key: report[key] for key in ("files", "accepted", "refused")} == {"files": 6, "accepted": 3, "refused": 3}
    gpus = {Path(one["file"]).stem: one["gpu"] for one in report["experiments"]}
    assert (gpus["a"], gpus["c"], gpus["e"]) == ("MI300X", "MI355X", "")
    [most, other] = report["reasons"]
    assert most["reason"].startswith("countdown has no setting 'stpes'")
    assert [Path(file).stem for file in most["files"]] == ["b", "d"]
    assert other["reason"] == "not an experiment"
    [wrong] = [one for one in report["experiments"] if Path(one["file"]).stem == "b"]
    assert [error["fix"] for error in wrong["errors"]] == ["did you mean 'steps'?"]


def test_the_table_has_one_line_for_each_reason(primus: Run, acme: dict[str, str], folder: Path) -> None:
    found = primus("config", "validate", str(folder), env=acme)
    lines = found.stdout.splitlines()
    assert lines[0] == f"3 of 6 experiments in {folder} are valid"
    assert lines[2:5] == [
        "files  refused because", "    2  countdown has no setting 'stpes'", "    1  not an experiment"
    ]  # fmt: skip
    assert "  MI300X/b.yaml" in lines


def test_a_folder_in_which_all_are_valid_ends_with_0(primus: Run, acme: dict[str, str], folder: Path) -> None:
    for name in ("MI300X/b.yaml", "MI355X/d.yaml", "other.yaml"):
        (folder / name).unlink()
    found = primus("config", "validate", str(folder), env=acme)
    assert (found.returncode, found.stdout) == (0, f"3 of 3 experiments in {folder} are valid\n")
    empty = folder / "none"
    empty.mkdir()
    assert "there is no experiment in" in primus("config", "validate", str(empty), env=acme).stderr


def test_one_experiment_is_judged_as_json(primus: Run, acme: dict[str, str], folder: Path) -> None:
    found = json.loads(primus("config", "validate", str(folder / "MI300X/a.yaml"), "--json", env=acme).stdout)
    assert (found["accepted"], found["errors"]) == (True, [])


def test_a_module_that_no_run_of_the_stage_uses_is_named(primus: Run, acme: dict[str, str], folder: Path) -> None:
    path = folder / "MI300X/a.yaml"
    path.write_text(path.read_text() + "  sft_trainer: {framework: countdown, model: {}}\n")
    said = "one module runs, 'pre_trainer'; not used: 'sft_trainer'"
    assert f"note: {said}\n" in primus("config", "validate", str(path), env=acme).stdout
    planned = primus("direct", "--dry-run", "--", "train", "pretrain", "--config", str(path), env=acme)
    assert said in planned.stdout
    assert json.loads(primus("config", "validate", str(folder), "--json", env=acme).stdout)["with_notes"] == 1
    told = primus("config", "validate", str(folder), env=acme).stdout
    [command] = re.findall(r"^1 of them with notes, which --json shows; those of one: primus (.*)$", told, re.M)
    assert command == f"config validate {path} --gpu MI300X"
    assert f"note: {said}\n" in primus(*command.split(), env=acme).stdout


def test_a_gpu_that_nobody_knows_is_no_mistake_of_the_experiments(
    primus: Run, acme: dict[str, str], folder: Path
) -> None:
    found = primus("config", "validate", str(folder), "--gpu", "MI999", env=acme)
    assert (found.returncode, found.stdout) == (2, "")
    assert "no GPU is called 'MI999'\n  why: known: MI" in found.stderr


def test_a_page_gets_a_table_by_family(primus: Run, acme: dict[str, str], folder: Path) -> None:
    for old, new in (("MI300X/a", "qwen3_8B-BF16"), ("MI300X/b", "qwen2.5_7B-FP8"), ("MI355X/c", "gpt_oss_20B")):
        (folder / f"{old}.yaml").rename(folder / f"{new}.yaml")
    lines = primus("config", "validate", str(folder), "--markdown", env=acme).stdout.splitlines()
    assert lines[0] == "| models | files | accepted | with notes | refused, because |"
    assert "| gpt_oss | 1 | 1 | 0 |  |" in lines
    assert "| qwen | 2 | 1 | 0 | 1: countdown has no setting 'stpes' |" in lines
    assert "| all | 6 | 3 | 0 | 3 |" in lines
    assert lines[-1].startswith("* not an experiment: ")


def test_a_table_is_of_a_folder(primus: Run, acme: dict[str, str], folder: Path) -> None:
    found = primus("config", "validate", str(folder / "e.yaml"), "--markdown", env=acme)
    assert (found.returncode, "--markdown is for a folder" in found.stderr) == (2, True)
