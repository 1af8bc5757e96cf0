"""The environment of an experiment, as `primus env` shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_env_command import EXPERIMENT, WRONG, assumed, variables

__all__ = ["assumed"]


def test_an_experiment_adds_its_env_and_its_framework(primus: Run, assumed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "exp.yaml").write_text(EXPERIMENT, encoding="utf-8")
    words = ("--assume-host", assumed["MI300X"], "--config", "exp.yaml")
    rows = variables(primus, *words, HF_TOKEN="hidden-hidden")
    assert rows["CUDA_DEVICE_MAX_CONNECTIONS"]["origin"] == "profile amd"
    size = rows["NCCL_P2P_NET_CHUNKSIZE"]
    assert (size["value"], size["origin"]) == ("262144", "experiment")
    assert size["overrode"] == [{"value": "524288", "origin": "profile amd"}]
    assert rows["HF_TOKEN"]["value"] == "<secret>"


def test_what_an_experiment_sets_counts_where_a_profile_asks(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "exp.yaml").write_text(EXPERIMENT.replace("env:", "env:\n  PRIMUS_DETERMINISTIC: 1"))
    assert "PYTHONHASHSEED" in variables(primus, "--config", "exp.yaml", HF_TOKEN="hidden-hidden")


@pytest.mark.parametrize("action", ["show", "explain"])
@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_no_secret_is_printed(action: str, json_too: tuple[str, ...], primus: Run, tmp_path: Path) -> None:
    (tmp_path / "exp.yaml").write_text(EXPERIMENT, encoding="utf-8")
    token = "hf_" + "y" * 24
    result = primus("env", action, *json_too, "--config", "exp.yaml", "--env", f"NCCL_NOTE={token}",
                    "--env", "HF_TOKEN=given-secret", env={"HF_TOKEN": "own-secret", "NCCL_NOTE": "a"})  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "<secret>" in result.stdout
    assert not [value for value in (token, "given-secret", "own-secret") if value in result.stdout + result.stderr]


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_request_is_explained_and_ends_with_2(what: str, primus: Run) -> None:
    words, message = WRONG[what]
    result = primus("env", *words)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
