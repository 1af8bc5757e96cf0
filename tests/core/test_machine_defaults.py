"""What a machine asks of a run looks at what the run will really have: the experiment's `env:`, below the person's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.machine.machines import amd, base, local, port, roce_gids, write

EXPERIMENT = """\
exp_name: down
env: {PRIMUS_DETERMINISTIC: "1", NCCL_IB_HCA: "=rdma1"}
modules:
  pre_trainer:
    framework: countdown
    overrides: {steps: 1}
"""
LATE_GID = [(local(2), "IB/RoCE v1"), (local(2), "RoCE v2")]

Planned = Callable[..., Mapping[str, str]]


@pytest.fixture
def planned(primus: Run, third_party: str, tmp_path: Path) -> Planned:
    """`planned(*options, **environ)`: the variables that the experiment's run would have, on eight MI300X."""
    ports = (port(f"rdma{n}", layer="Ethernet", gids=gids) for n, gids in enumerate((roce_gids(0), LATE_GID)))
    write(tmp_path / "m", base(), amd("MI300X"), *ports)
    (tmp_path / "exp.yaml").write_text(EXPERIMENT, encoding="utf-8")

    def ask(*options: str, **environ: str) -> Mapping[str, str]:
        words = ("--dry-run", "--json", "--assume-host", str(tmp_path / "m"), *options)
        result = primus("direct", *words, "--", "train", "pretrain", "--config", "exp.yaml",
                        env={"PYTHONPATH": third_party, **environ})  # fmt: skip
        assert result.returncode == 0, result.stderr
        found: list[dict[str, Any]] = json.loads(result.stdout)["environment"]
        return {row["name"]: row["value"] for row in found}

    return ask


def test_a_damaged_profile_ends_with_2_and_names_the_file(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text("x = " + "[" * 20000, encoding="utf-8")
    result = primus("env", "show", "--profile", "deep.toml")
    assert result.returncode == 2
    assert "deep.toml: this profile cannot be read\n" in result.stderr
    assert "it is damaged" in result.stderr
