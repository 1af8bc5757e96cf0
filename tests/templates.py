"""What the tests of templates share: one written out, validated, and planned on the machine that it is for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.machine import machines

from primus_core.cli.main import main
from primus_machine.gpus.models import by_name
from primus_train.templates import catalogue
from primus_train.templates.recipe import Template

HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NNODES", "GPUS_PER_NODE")
GPUS = ("MI300X", "MI325X", "MI355X")


def of(backend: str) -> list[Template]:
    """The templates of one backend; none where its package is missing."""
    return [template for template in catalogue.known() if template.backend == backend]


def machine(gpu: str, folder: Path) -> str:
    """A node with eight of these GPUs, as `--assume-host` takes it."""
    machines.write(folder / gpu, machines.base(), machines.amd(gpu))
    return str(folder / gpu)


def fits(template: Template, bytes_on_each: float) -> bool:
    """Whether a GPU holds so much, and has at least a sixth of its memory left for activations."""
    gpu = by_name(template.gpu)
    assert gpu
    return bytes_on_each < gpu.memory_gb * 2**30 * 5 / 6


def planned(template: Template, tree: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The plan of the experiment that `primus config new` writes, which is valid, on the machine `tree`."""
    path = f"{tree}-{template.model}-{template.precision}.yaml"
    nodes = str(template.nodes)
    assert (
        main(["config", "new", template.model, "--backend", template.backend, "--gpu", template.gpu, "-o", path]) == 0
    )
    assert main(["config", "validate", path, "--gpu", template.gpu, "--nodes", nodes]) == 0
    said = capsys.readouterr().out
    assert f"({template.nodes} node{'s' * (template.nodes > 1)} with 8 {template.gpu} each)" in said
    assert "tokens per step" in said
    where = ["--env", f"NNODES={nodes}", "--env", "MASTER_ADDR=node0", "--assume-host", tree]
    assert main(["direct", "--dry-run", "--json", *where, "--", "train", "pretrain", "--config", path]) == 0, (
        template.name
    )
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert plan["gpu_model"] == template.gpu
    assert plan["config"]["device"] == "gpu"
    return plan
