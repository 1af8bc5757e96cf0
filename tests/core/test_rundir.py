"""The run directory: its name, and what later runs find in earlier ones."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from primus_core.errors import RequestError
from primus_core.journal import record
from primus_core.journal.record import RunRecord
from primus_core.plan.plan import RunPlace
from primus_core.runs.rundir import place
from primus_core.runs.snapshot_form import MANIFEST
from primus_machine.facts import Facts
from primus_machine.host import HostRoot

MOMENT = time.mktime((2026, 11, 21, 10, 15, 26, 0, 0, -1))


def facts(cwd: Path, **environ: str) -> Facts:
    """A person standing in `cwd` at that moment."""
    return Facts(
        environ=environ,
        hostname="here",
        cwd=str(cwd),
        time=MOMENT,
        python="python",
        cpu_count=1,
        gpus=(),
        numa_cpus={},
        host=HostRoot("/nonexistent", environ),
    )


def run(folder: Path, name: str, status: str = "failed", *files: str) -> Path:
    """An earlier run with these files."""
    directory = folder / name
    for file in files:
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text("")
    directory.mkdir(exist_ok=True)
    (directory / MANIFEST).write_text("{}")
    if status:
        (directory / "metadata.json").write_text(json.dumps({"status": status}))
    return directory


def test_a_run_is_named_by_experiment_and_time_and_nothing_is_made(tmp_path: Path) -> None:
    found = place(facts(tmp_path), "output", "small")
    assert found == RunPlace(
        "small_2026_11_21_101526", f"{tmp_path}/output/small_2026_11_21_101526", f"{tmp_path}/output/small"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_workspace_may_be_absolute_or_lead_upwards(tmp_path: Path) -> None:
    assert place(facts(tmp_path), "/data/runs/", "x").link == "/data/runs/x"
    assert place(facts(tmp_path / "below"), "../runs", "x").link == f"{tmp_path}/runs/x"


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        names.append(place(facts(tmp_path), ".", "small").run_id)
        (tmp_path / names[-1]).mkdir()
    assert names == [f"small_2026_11_21_101526{end}" for end in ("", "_2", "_3")]


def test_a_dangling_link_also_takes_a_name(tmp_path: Path) -> None:
    (tmp_path / "small_2026_11_21_101526").symlink_to("nowhere")
    assert place(facts(tmp_path), ".", "small").run_id.endswith("_2")


@pytest.mark.parametrize("name", ["", "latest", "a/b", "..", "../x", ".hidden", "-x", "a b", "a\n", "é", "$HOME"])
def test_what_cannot_name_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match="cannot name a run"):
        place(facts(tmp_path), "output", name)


def test_an_inner_layer_joins_the_run_of_the_outer_one(tmp_path: Path) -> None:
    joined = place(facts(tmp_path, PRIMUS_RUN_DIR="/runs/a_1", PRIMUS_RUN_ID="a_1"), "output", "other")
    assert joined == RunPlace("a_1", "/runs/a_1", "", joined=True)
    assert place(facts(tmp_path, PRIMUS_RUN_DIR="/runs/a_1"), "output", "other").run_id == "a_1"


@pytest.mark.parametrize("text", [None, "", "{", "[]", "\udcff"])
def test_metadata_that_cannot_be_read_is_empty(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "metadata.json").write_text(text, errors="surrogateescape")
    assert record.read(str(tmp_path)) == RunRecord()
