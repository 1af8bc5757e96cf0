"""The shipped settings list is the framework's, and decides what happens with other versions."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.processes import run_ranks

from primus_core.errors import MachineError
from primus_machine.packages import version_of
from primus_torchtitan.schema import load, schema_for, shipped


@pytest.mark.full
@pytest.mark.torch
def test_the_shipped_schema_equals_the_installed_framework(clean_environ: dict[str, str], tmp_path: Path) -> None:
    version = version_of("torchtitan")
    assert version in shipped(), (
        f"ship a schema: python -m primus_torchtitan.generate_schema > torchtitan-{version}.json"
    )
    (ended,) = run_ranks("primus_torchtitan.generate_schema", [clean_environ], cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out[ended.out.index("{") :]) == json.loads(shipped()[version].read_text())


def test_without_torchtitan_the_newest_schema_plans() -> None:
    schema, notes = schema_for("", sys.executable)
    assert schema.version == list(shipped())[-1]
    assert "not installed" in notes[0]


@pytest.mark.parametrize("version", ["0.2.2", "0.4.0", "1.0"])
def test_a_version_that_cannot_be_run_is_refused_by_name(version: str) -> None:
    with pytest.raises(MachineError, match=rf"torchtitan {version} is installed.*0\.3\.x"):
        schema_for(version, sys.executable)


def test_a_version_without_schema_is_asked(tmp_path: Path) -> None:
    stub = tmp_path / "python"
    stub.write_text(f'#!/bin/sh\necho a warning first\ncp {list(shipped().values())[-1]} "$3"\n')
    stub.chmod(0o755)
    schema, notes = schema_for("0.3.99", str(stub))
    assert "training.steps" in schema.options
    assert "slow" in notes[0]


def test_a_version_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(MachineError, match="could not be imported"):
        schema_for("0.3.99", "false")


def test_the_schema_knows_defaults_choices_and_families() -> None:
    schema = load(list(shipped().values())[-1])
    assert schema.options["training.steps"].default == 10000
    assert schema.options["training.dtype"].choices == ("bfloat16", "float32")
    assert schema.options["training.steps"].help
    assert schema.families["llama3"]["8B"]["n_layers"] == 32
    assert schema.schedules["1F1B"] == "single"
