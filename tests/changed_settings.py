"""Continues a training with other settings, and compares it with one that had them from its first step."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.end_cells import project_of
from tests.project import TASK, Project, rows

__all__ = ["compare_continued", "project_with_run"]

SPY = """
import importlib.util, json, os
if os.environ.get("RANK") == "0" and importlib.util.find_spec("torch"):
    from torch.optim.optimizer import register_optimizer_step_pre_hook
    def note(optimizer, args, kwargs):
        groups = [{k: float(group[k]) for k in ("lr", "eps", "weight_decay")} | {"betas": list(group["betas"])}
                  for group in optimizer.param_groups if "lr" in group]  # TorchTitan's container of optimizers has none
        if not any(group["lr"] for group in groups):
            return  # torch makes such a step before it loads a checkpoint
        with open(os.environ["PRIMUS_RUN_DIR"] + "/used.jsonl", "a") as file:
            file.write(json.dumps(groups) + chr(10))
    register_optimizer_step_pre_hook(note)
"""
"""Notes what each step of torch's optimizer uses, by its groups of parameters."""


def project_with_run(backend: str, folder: Path, *words: str) -> Project:
    """A project whose run `first` has trained ten steps, and saved the fifth one."""
    project = project_of(backend, folder)
    (folder / "gate/sitecustomize.py").write_text(SPY)
    project.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder / "gate"), os.environ.get("PYTHONPATH"))))
    project("direct", *TASK, "exp_name=first", *words)
    return project


def compare_continued(project: Project, name: str, step: int, *changed: str) -> list[str]:
    """What differs between a run that continues `first` behind `step`, and one that begins with the settings."""
    first = (project.folder / "output/first").resolve()
    project("direct", *TASK, *changed, f"exp_name={name}", "--continue", f"{first}@{step}")
    project("direct", *TASK, *changed, f"exp_name={name}-anew")
    continued, anew = ((project.folder / "output" / word).resolve() for word in (name, f"{name}-anew"))
    seen: list[Callable[[Path], list[Any]]] = [_rates]
    if importlib.util.find_spec("torch"):
        seen.append(_used)
    pairs = [(see(continued), see(anew)[step:]) for see in seen]
    return [f"continued {ours}, anew {theirs}" for ours, theirs in pairs if ours != theirs or not ours]


def _rates(run: Path) -> list[tuple[int, float]]:
    return [(row["step"], round(row["lr"], 12)) for row in rows(run)]


def _used(run: Path) -> list[Any]:
    return [json.loads(line) for line in (run / "used.jsonl").read_text().splitlines()]
