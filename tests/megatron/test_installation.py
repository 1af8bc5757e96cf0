"""A checkout of Megatron that the person names is used instead of the installed one."""

from __future__ import annotations

import os
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from tests.conftest import ROOT, Run
from tests.megatron.conftest import tiny
from tests.planning import Resolve

from primus_core.errors import ConfigError, MachineError
from primus_megatron.installation import importable_version

CPU = {"CUDA_VISIBLE_DEVICES": "", "GPUS_PER_NODE": "1"}


def checkout(folder: Path, version: str) -> Path:
    """As much of one as planning reads."""
    major, minor, patch = version.split(".")
    (folder / "megatron/core").mkdir(parents=True)
    info = f"MAJOR = {major}\nMINOR = {minor}\nPATCH = {patch}\nPRE_RELEASE = ''\n"
    (folder / "megatron/core/package_info.py").write_text(info)
    return folder


@pytest.mark.parametrize("by", ["setting", "variable"])
def test_its_version_is_the_one_that_is_planned_for(resolve: Resolve, tmp_path: Path, by: str) -> None:
    folder = checkout(tmp_path / "Megatron-LM", "0.17.1")
    named = {"backend_path": "Megatron-LM"} if by == "setting" else {}
    environ = {} if by == "setting" else {"BACKEND_PATH": str(folder)}
    plan = resolve(tiny(**named), environ=environ)
    assert (plan.config["framework_version"], plan.config["checkout"]) == ("0.17.1", str(folder))
    assert f"megatron-core 0.17.1 is in {folder}" in plan.notes
    assert str(folder) in {need.name for need in plan.requires if need.kind == "file"}
    assert "backend_path" not in plan.config["settings"]


def test_the_experiment_wins_over_the_environment(resolve: Resolve, tmp_path: Path) -> None:
    checkout(tmp_path / "mine", "0.17.1")
    other = checkout(tmp_path / "other", "0.18.2")
    plan = resolve(tiny(backend_path="mine"), environ={"BACKEND_PATH": str(other)})
    assert plan.config["framework_version"] == "0.17.1"


def test_settings_are_those_of_its_version(resolve: Resolve, tmp_path: Path) -> None:
    checkout(tmp_path / "old", "0.17.1")
    checkout(tmp_path / "new", "0.19.2")
    assert resolve(tiny(backend_path="new", null_tokenizer_eod_id=3))
    with pytest.raises(ConfigError, match="no setting 'null_tokenizer_eod_id'"):
        resolve(tiny(backend_path="old", null_tokenizer_eod_id=3))


@pytest.mark.parametrize("version", ["0.16.1", "0.20.0"])
def test_a_version_that_cannot_be_run_is_refused_by_name(resolve: Resolve, tmp_path: Path, version: str) -> None:
    folder = checkout(tmp_path / "Megatron-LM", version)
    with pytest.raises(MachineError, match=f"megatron-core {version} is in {folder}") as caught:
        resolve(tiny(backend_path="Megatron-LM"))
    assert caught.value.fix == "check out one of these"


@pytest.mark.full
def test_a_folder_without_megatron_is_refused(primus: Run, tmp_path: Path) -> None:
    config = ("direct", "--", "train", "pretrain", "--config", str(ROOT / "examples/megatron/tiny-cpu.yaml"))
    done = primus(*config, "backend_path=absent", env=CPU)
    assert done.returncode == 3
    assert (
        f"'absent' contains no Megatron\n  why: there is no {tmp_path}/absent/megatron/core/package_info" in done.stderr
    )
    done = primus(*config, env=CPU | {"BACKEND_PATH": str(tmp_path)})
    assert done.returncode == 3
    assert "remove BACKEND_PATH" in done.stderr


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.skipif(not importable_version(), reason="megatron-core is not installed")
def test_its_code_is_what_trains(primus: Run, tmp_path: Path) -> None:
    found = find_spec("megatron")
    installed = (
        Path(next(iter(found.submodule_search_locations))) if found and found.submodule_search_locations else None
    )
    assert installed
    (tmp_path / "Megatron-LM/megatron/training").mkdir(parents=True)
    (tmp_path / "Megatron-LM/megatron/core").symlink_to(installed / "core")
    for name in os.listdir(installed / "training"):
        (tmp_path / "Megatron-LM/megatron/training" / name).symlink_to(installed / "training" / name)
    begin = tmp_path / "Megatron-LM/megatron/training/__init__.py"
    text = begin.read_text()
    begin.unlink()
    begin.write_text(f"print('this is the checkout')\n{text}")
    config = ("direct", "--", "train", "pretrain", "--config", str(ROOT / "examples/megatron/tiny-cpu.yaml"))
    done = primus(
        *config, "train_iters=3", "lr_warmup_iters=1", "save_interval=3", env=CPU | {"BACKEND_PATH": "Megatron-LM"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "this is the checkout" in (tmp_path / "output/megatron-tiny/logs/rank_0.log").read_text()
    assert f"megatron-core {importable_version()} is in {tmp_path}/Megatron-LM" in done.stderr
    assert (tmp_path / "output/megatron-tiny/checkpoints/iter_0000003/primus_sizes.json").exists()


def test_megatron_takes_any_build_of_torch_so_pip_leaves_the_one_that_is_there() -> None:
    """What `tests/test_installing.py` takes for granted where Megatron is not installed."""
    asked = [
        need for need in map(Requirement, requires("megatron-core") or ()) if need.name == "torch" and not need.marker
    ]
    assert [need.specifier.contains("2.9.1+rocm6.4") for need in asked] == [True]


def test_a_torch_older_than_tested_is_told(resolve: Resolve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch-2.9.1+rocm6.4.dist-info").mkdir()
    (tmp_path / "torch-2.9.1+rocm6.4.dist-info/METADATA").write_text("Name: torch\nVersion: 2.9.1+rocm6.4\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "torch 2.9.1+rocm6.4 is older than 2.13" in " ".join(resolve(tiny(), environ=CPU).notes)


def test_a_ramp_of_the_batch_size_is_judged_as_its_version_takes_it(resolve: Resolve, tmp_path: Path) -> None:
    checkout(tmp_path / "old", "0.17.1")
    checkout(tmp_path / "new", "0.18.2")
    assert resolve(tiny(backend_path="old", global_batch_size=8, rampup_batch_size="2 2 100"))
    with pytest.raises(ConfigError, match="an increment that leads to 'global_batch_size: 8'"):
        resolve(tiny(backend_path="old", global_batch_size=8, rampup_batch_size="2 5 100"))
    with pytest.raises(ConfigError, match=r"has ignored it since 0\.18"):
        resolve(tiny(backend_path="new", global_batch_size=8, rampup_batch_size="2 2 100"))
