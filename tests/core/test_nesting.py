"""A `primus` command in a hook or a rank is a run of its own, and leaves the run around it alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.core.test_direct import metadata

from primus_core.environment.nesting import is_alone, outside
from primus_core.environment.resolve import OWNED
from primus_machine.host import HostRoot

NESTED = '''
"""Tasks that start Primus in a rank."""
import os, subprocess, sys
from primus_core import register_task

PRIMUS = (sys.executable, "-m", "primus_core")

@register_task("outer")
def outer(call):
    "Start another run in the rank, with these words."
    return subprocess.call([*PRIMUS, *call.words])

@register_task("inner")
def inner(call):
    "Say where it is."
    print("inner", call.rank, "of", call.world_size, os.environ["NNODES"], call.run_dir, flush=True)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with these tasks, and a hook that starts a run, too, if it is told to."""
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py]\n")
    (tmp_path / "tasks.py").write_text(NESTED)
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks/01.sh").write_text('[ -z "$HOOKED" ] || HOOKED= primus direct -- inner\n')
    return tmp_path


def runs(folder: Path, name: str) -> list[Path]:
    """Oldest first."""
    return sorted((folder / "output").glob(f"{name}_2*"))


def listed(primus: Run, folder: Path) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(primus("runs", "list", "--json", cwd=folder).stdout)}


@pytest.mark.torch
@pytest.mark.full
def test_a_command_in_a_rank_is_a_run_of_its_own_and_the_outer_one_still_replays(primus: Run, folder: Path) -> None:
    done = primus("direct", "--", "outer", "direct", "--", "inner", cwd=folder)
    assert done.returncode == 0, done.stderr
    [outer], [inner] = runs(folder, "outer"), runs(folder, "inner")
    assert (metadata(outer)["parent"], metadata(outer)["task"]) == (None, "outer")
    assert metadata(inner)["parent"] == {"run_id": outer.name, "directory": str(outer)}
    assert json.loads((outer / "plan.json").read_text())["task"] == "outer"
    assert f"inner 0 of 1 1 {inner}" in done.stdout
    again = primus("replay", outer.name, cwd=folder)
    assert again.returncode == 0, again.stderr
    assert len(runs(folder, "inner")) == 2, "which started its own, too"
    assert listed(primus, folder)[inner.name]["parent"] == outer.name
    shown = primus("runs", "show", inner.name, cwd=folder).stdout
    assert f"started by {outer.name}" in shown


@pytest.mark.full
def test_a_command_in_a_hook_is_a_run_of_its_own(primus: Run, folder: Path) -> None:
    done = primus("direct", "--", "outer", "--version", env={"HOOKED": "yes"}, cwd=folder)
    assert done.returncode == 0, done.stderr
    [outer], [inner] = runs(folder, "outer"), runs(folder, "inner")
    assert metadata(inner)["parent"]["run_id"] == outer.name
    assert (metadata(outer)["status"], metadata(inner)["status"]) == ("completed", "completed")


@pytest.mark.full
def test_what_a_nested_run_starts_has_that_one_as_its_parent(primus: Run, folder: Path) -> None:
    done = primus("direct", "--", "outer", "direct", "--", "outer", "direct", "--", "inner", cwd=folder)
    assert done.returncode == 0, done.stderr
    [first, second], [inner] = runs(folder, "outer"), runs(folder, "inner")
    parents = {path.name: (metadata(path)["parent"] or {}).get("run_id") for path in (first, second, inner)}
    assert parents == {first.name: None, second.name: first.name, inner.name: second.name}


def test_a_layer_and_a_person_join_the_run_that_they_name() -> None:
    layer = {"PRIMUS_RUN_DIR": "/runs/b", "PRIMUS_OUTER": "container", "PRIMUS_PARENT": "/runs/a", "NNODES": "2"}
    assert outside(HostRoot(environ=layer)).environ == layer
    assert not is_alone(layer)
    person = {"PRIMUS_RUN_DIR": "/runs/b", "NNODES": "2"}
    assert outside(HostRoot(environ=person)).environ == person


def test_of_the_run_around_only_its_name_is_left() -> None:
    inside = {
        "PRIMUS_RUN_DIR": "/runs/a", "PRIMUS_PARENT": "/runs/a", "PRIMUS_OUTER": "slurm", "RANK": "3", "NNODES": "2",
        "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "x", "NCCL_DEBUG": "INFO", "PRIMUS_CONFIG": "site.yaml",
    }  # fmt: skip
    kept = {"PRIMUS_PARENT": "/runs/a", "NCCL_DEBUG": "INFO", "PRIMUS_CONFIG": "site.yaml"}
    assert outside(HostRoot(environ=inside)).environ == kept
    assert is_alone(kept)


def test_what_primus_itself_sets_for_ranks_nobody_else_sets_and_no_further_run_inherits(
    primus: Run, folder: Path
) -> None:
    """A name that `Planning.environment` adds joins `resolve.OWNED` and, if it is of one run alone, `nesting`."""
    plan = json.loads(primus("direct", "--dry-run", "--json", "--", "inner", cwd=folder).stdout)
    own = {one["name"]: one["value"] for one in plan["environment"] if one["origin"] == "primus"}
    assert {"PRIMUS_RUN_DIR", "PRIMUS_RUN_ID", "PRIMUS_METRICS_FILE"} <= own.keys()
    assert own.keys() <= OWNED, "with --env, somebody could set it"
    assert own.keys() - outside(HostRoot(environ=own)).environ.keys() == own.keys() - {"PRIMUS_PARENT"}
