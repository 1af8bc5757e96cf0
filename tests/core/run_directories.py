"""Run directories as Primus writes them, for tests: whole snapshots with checksums, one setting changed at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from primus_core.runs.snapshot_form import dump

STARTED = 1795272570.5
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def make(folder: Path, name: str = "small_2026_11_21_101526", **parts: Any) -> Path:
    """A completed training run. `parts`: `files` to replace or add by path, and all that `snapshot` takes."""
    directory = folder / name
    extra: Mapping[str, str] = parts.pop("files", {})
    known: Mapping[str, Any] = parts.pop("metadata", {})
    for path, text in {**snapshot(directory, **parts), **extra}.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8", newline="")
    seal(directory)
    (directory / "logs").mkdir()
    (directory / "metadata.json").write_text(json.dumps(metadata(name, **known)), encoding="utf-8")
    return directory


def snapshot(
    directory: Path,
    *,
    backend: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    packages: Mapping[str, str] | None = None,
    system: Mapping[str, Any] | None = None,
    code: Mapping[str, Any] | None = None,
    plan: Mapping[str, Any] | None = None,
    patch: str = "",
    train: bool = True,
) -> dict[str, str]:
    """The files of a snapshot by path; every argument changes some of its values."""
    own = {
        "PRIMUS_RUN_DIR": str(directory),
        "PRIMUS_METRICS_FILE": f"{directory}/metrics.jsonl",
        "HF_TOKEN": "<secret>",
    }
    versions = {"torch": "2.9.0", "primus-core": "0.1.0", **(packages or {})}
    machine = {**SYSTEM, **(system or {})}
    files = {
        "plan.json": json.dumps(plan_of(directory, **(plan or {}))),
        "env/primus_env_dump.txt": dump(
            {"OMP_NUM_THREADS": "2", "PWD": str(directory.parent), **own, **(environ or {})}
        ),
        "env/gpu_model.txt": f"{machine['gpu_model'] or 'none'}\n",
        "env/rocm_version.txt": f"{machine['rocm'] or 'none'}\n",
        "env/system_info.json": json.dumps(machine),
        "env/packages.txt": "".join(f"{name}=={version}\n" for name, version in sorted(versions.items())),
        "code/code.json": json.dumps({**CODE, **(code or {})}),
        "code/diff.patch": patch,
    }
    if train:
        settings = {"settings": {"optimizer.lr": 0.004, "dump_folder": str(directory)}, "stage": "pretrain"}
        files["config/primus_config.yaml"] = "exp_name: small\nworkspace: ./output\n"
        files["config/backend_config.json"] = json.dumps({**settings, **(backend or {})})
    return files


SYSTEM = {
    "host": "node1",
    "kernel": "6.8.0",
    "os": "Ubuntu 24.04",
    "cpu_model": "AMD EPYC 9654",
    "cpu_count": 96,
    "memory_bytes": 1 << 40,
    "driver": "6.12.12",
    "rocm": "6.4.1",
    "cuda": "",
    "gpu_model": "MI300X",
    "physical_gpus": 8,
    "gpus": [{"vendor": "amd", "gpu": number} for number in range(8)],
    "notes": [],
}
CODE = {
    "root": "/home/ada/project",
    "commit": COMMIT,
    "branch": "main",
    "dirty": False,
    "patch_sha256": "",
    "untracked": [],
    "omitted": [],
    "error": "",
}


def plan_of(directory: Path, **changes: Any) -> dict[str, Any]:
    """A plan of schema 2, as JSON."""
    variable = {"name": "OMP_NUM_THREADS", "value": "2", "origin": "torchtitan", "why": "2 CPUs", "secret": False}
    return {
        "schema": 2,
        "primus_version": "0.1.0",
        "command": ["primus", "direct", "--", "train", "pretrain", "--config", "small.yaml"],
        "runtime": "direct",
        "task": "train",
        "framework": "torchtitan",
        "model": "llama3.1_8B",
        "place": {"run_id": directory.name, "directory": str(directory), "link": "", "joined": False},
        "distributed": {"nnodes": 1, "node_rank": 0, "gpus_per_node": 8, "master_addr": "localhost", "master_port": 1},
        "environment": [variable],
        "worker": {"module": "primus_torchtitan.worker", "args": [], "launcher": "torchrun"},
        "steps": [],
        **changes,
    }


def metadata(run_id: str, **changes: Any) -> dict[str, Any]:
    """The metadata of a run that completed after a minute on another machine."""
    return {
        "run_id": run_id,
        "command": ["primus", "direct", "--", "train", "pretrain", "--config", "small.yaml"],
        "task": "train",
        "runtime": "direct",
        "framework": "torchtitan",
        "model": "llama3.1_8B",
        "gpu_model": "MI300X",
        "world_size": 8,
        "primus_version": "0.1.0",
        "host": "node1",
        "user": "ada",
        "cwd": "/home/ada/project",
        "pid": 1,
        "started": STARTED,
        "parent": None,
        "status": "completed",
        "exit_code": 0,
        "ended": STARTED + 61.25,
        "last_step": 240,
        "last_loss": 3.25,
        "first_failure": None,
        **changes,
    }


def here(**changes: Any) -> dict[str, Any]:
    """What a run of this very process says of itself while it goes on."""
    return {"status": "started", "host": os.uname().nodename, "pid": os.getpid(), **changes}


def seal(directory: Path, schema: int = 1) -> None:
    """Write `snapshot.json` over all files that are there."""
    files = {
        str(path.relative_to(directory)): {
            "sha256": sha256(path.read_bytes()).hexdigest(),
            "bytes": path.stat().st_size,
        }
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in ("snapshot.json", "metadata.json")
    }
    (directory / "snapshot.json").write_text(json.dumps({"schema": schema, "files": files}), encoding="utf-8")


def metrics(directory: Path, *losses: float) -> None:
    """Write `metrics.jsonl` with a step for each loss, 1000 tokens/s and 10 more each step."""
    rows = [
        {"step": n, "steps": len(losses), "loss": loss, "tokens_per_second": 990 + 10 * n, "time": STARTED + 10 * n}
        for n, loss in enumerate(losses, 1)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (directory / "metrics.jsonl").write_text(text, encoding="utf-8")
