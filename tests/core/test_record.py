"""The record of a run: read whatever is in it, written whole, and what another version wrote survives."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ROOT
from tests.core.run_directories import metadata

from primus_core.journal import record
from primus_core.journal.record import Attempt, FirstFailure, OtherRun, RunRecord, SchedulerUsed

WHOLE = RunRecord(
    run_id="exp_2026_01_01_000000",
    status="failed",
    command=("primus", "direct"),
    world_size=8,
    pid=0,
    started=1.0,
    submitted=0.5,
    job_id="4711",
    scheduler=SchedulerUsed("slurm", "slurm", "23.11"),
    attempts=(
        Attempt(1.0, 2.0, 0, 0, "", ("n1",)),
        Attempt(3.0),
    ),
    continues=OtherRun("a", "/runs/a"),
    ended=9.0,
    exit_code=0,
    last_loss=0.0,
    first_failure=FirstFailure(3, "ended by SIGSEGV", 1, 139, 8.5),
    files_changed={"/x": "changed"},
    plan_differs=({"key": "a.b", "submitted": None, "here": 1},),
    others={"future": {"a": [1]}},
)
EACH: dict[str, Any] = {
    "str": "a",
    "int | None": 7,
    "float | None": 7.0,
    "tuple[str, ...]": ("a", "b"),
    "tuple[Attempt, ...]": (Attempt(1.0, 2.0, 0, 0, "", ("n1",)),),
    "tuple[Mapping[str, Any], ...]": ({"key": "a.b", "submitted": None, "here": 1},),
    "Mapping[str, str]": {"/x": "changed"},
    "OtherRun | None": OtherRun("a", "/runs/a"),
    "SchedulerUsed | None": SchedulerUsed("slurm", "slurm", "23.11"),
    "FirstFailure | None": FirstFailure(3, "ended by SIGSEGV", 1, 139, 8.5),
}
"""A value of each type that a field of the record has."""
FULL = RunRecord(**{one.name: EACH[str(one.type)] for one in fields(RunRecord) if one.name != "others"})
"""Each field of the record is known; a field that is added to it is here at once."""
NAMES = [one.name for one in fields(RunRecord) if one.name != "others"]
OWN = {one.name for one in fields(RunRecord) if one.metadata.get("from") == ()}
SOURCES = "".join(
    path.read_text() for path in sorted((ROOT / "packages").glob("*/src/**/*.py")) if path.name != "record.py"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(WHOLE.to_dict())), inner, max_size=9)
    ),
    max_leaves=30,
)


def test_what_is_written_is_read_and_fields_of_a_newer_version_survive(tmp_path: Path) -> None:
    record.write(str(tmp_path), WHOLE)
    assert record.read(str(tmp_path)) == WHOLE
    record.write(str(tmp_path), replace(record.read(str(tmp_path)), status="interrupted"))
    assert json.loads((tmp_path / "metadata.json").read_text())["future"] == {"a": [1]}


@given(JSON)
@pytest.mark.full
def test_any_json_is_a_record_and_what_is_read_of_it_is_read_again(data: Any) -> None:
    found = RunRecord.of(data)
    assert RunRecord.of(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize(
    "damaged",
    [{"pid": True}, {"started": "yesterday"}, {"command": "primus"}, {"attempts": [3]}, {"first_failure": ["x"]}],
)
def test_a_field_of_another_type_counts_as_not_known(damaged: dict[str, Any]) -> None:
    assert RunRecord.of(damaged) == RunRecord()


def test_a_status_that_is_no_text_is_none_that_this_version_knows() -> None:
    assert RunRecord.of({"status": ["completed"]}).status == "unknown"


def test_a_record_of_primus_0_1_is_read() -> None:
    known = metadata("exp_2026_01_01_000000", parent={"run_id": "a", "directory": "/a"}, first_failure={"rank": 3})
    found = RunRecord.of(known)
    assert (found.status, found.exit_code, found.last_step, found.parent) == ("completed", 0, 240, OtherRun("a", "/a"))
    assert found.first_failure == FirstFailure(3)
    assert not found.others
    assert found.to_dict().items() >= {**known, "first_failure": {"rank": 3, "what": ""}}.items()


def test_an_attempt_that_has_not_ended_says_only_when_it_began() -> None:
    assert Attempt(3.0).to_dict() == {"started": 3.0}
    assert Attempt(3.0, what="killed").to_dict() == {
        "started": 3.0, "ended": None, "exit_code": None, "last_step": None, "what": "killed",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_each_field_is_in_the_file_and_is_read_again(name: str, tmp_path: Path) -> None:
    one = RunRecord(**{name: getattr(FULL, name)})
    record.write(str(tmp_path), one)
    assert name in json.loads((tmp_path / "metadata.json").read_text(encoding="utf-8"))
    assert record.read(str(tmp_path)) == one


@pytest.mark.parametrize("source", ["submission", "nodes"])
@pytest.mark.parametrize("name", NAMES)
def test_each_field_that_a_process_does_not_know_is_taken_from_the_others_unless_it_is_its_own(
    name: str, source: str
) -> None:
    [declared] = [one.metadata.get("from", ("submission", "nodes")) for one in fields(RunRecord) if one.name == name]
    found = getattr(RunRecord().joined(source, [RunRecord(), FULL]), name)
    assert (found == getattr(FULL, name)) is (source in declared)


def test_of_several_nodes_the_first_one_that_knows_a_field_counts() -> None:
    nodes = [RunRecord(), RunRecord(gpu_model="MI300X", model="a"), RunRecord(gpu_model="MI355X", model="b")]
    found = RunRecord(gpu_model="of the login node", framework="torchtitan").joined("nodes", nodes)
    assert (found.gpu_model, found.model, found.framework) == ("MI300X", "a", "torchtitan")


@pytest.mark.parametrize("name", NAMES)
def test_each_field_gets_a_value_somewhere_and_is_on_the_page_of_the_run_directory(name: str) -> None:
    assert re.search(rf"\b{name}=|\"{name}\":", SOURCES), (
        f"nothing sets `{name}`: see `RecordWriter` in runs/record_writer.py"
    )
    assert f"`{name}`" in (ROOT / "docs/run-directory.md").read_text().partition("What is in `metadata.json`?")[2]
