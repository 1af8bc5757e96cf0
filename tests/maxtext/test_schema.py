"""The shipped settings list is the framework's, and decides what happens with other versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from primus_core.errors import MachineError
from primus_machine.packages import version_of
from primus_maxtext.schema import load, schema_for, shipped


@pytest.mark.full
@pytest.mark.skipif(not version_of("maxtext"), reason="maxtext is not installed")
def test_the_shipped_schema_equals_the_installed_framework(tmp_path: Path) -> None:
    version = version_of("maxtext")
    assert version in shipped(), f"ship one: python -m primus_maxtext.generate_schema maxtext-{version}.json"
    command = [sys.executable, "-m", "primus_maxtext.generate_schema", str(tmp_path / "schema.json")]
    environ = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "schema.json").read_text()) == json.loads(shipped()[version].read_text())


def test_without_maxtext_the_newest_schema_plans() -> None:
    schema, notes = schema_for("", sys.executable)
    assert schema.version == list(shipped())[-1]
    assert "not installed" in notes[0]


@pytest.mark.parametrize("version", ["0.2.4", "0.3.0", "1.0"])
def test_a_version_that_cannot_be_run_is_refused_by_name(version: str) -> None:
    with pytest.raises(MachineError, match=rf"maxtext {version} is installed.*0\.2\.5"):
        schema_for(version, sys.executable)


def test_a_version_without_schema_is_asked(tmp_path: Path) -> None:
    stub = tmp_path / "python"
    stub.write_text(f'#!/bin/sh\necho a warning first\ncp {list(shipped().values())[-1]} "$3"\n')
    stub.chmod(0o755)
    schema, notes = schema_for("0.2.99", str(stub))
    assert "steps" in schema.options
    assert "slow" in notes[0]


def test_a_version_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(MachineError, match="could not be imported"):
        schema_for("0.2.99", "false")


def test_the_schema_knows_types_defaults_choices_and_models() -> None:
    schema = load(list(shipped().values())[-1])
    assert schema.options["steps"].type == "int"
    assert schema.options["weight_dtype"].default == "float32"
    assert "nanoo_fp8" in schema.options["quantization"].choices
    assert schema.options["model_name"].default == "default"
    assert schema.options["remat_policy"].help
    assert schema.models["llama2-7b"]["base_mlp_dim"] == 11008
