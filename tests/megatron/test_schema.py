"""The shipped settings lists are the framework's, and decide what happens with other versions."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12")

from tests.megatron.conftest import Python

from primus_core.errors import MachineError
from primus_machine.packages import version_of
from primus_megatron.installation import Installation
from primus_megatron.schema import load, schema_for, shipped


@pytest.mark.torch
@pytest.mark.full
def test_the_shipped_schema_equals_the_installed_framework(python: Python, tmp_path: Path) -> None:
    pytest.importorskip("megatron.training", reason="megatron-core is not installed")
    version = version_of("megatron-core")
    assert version in shipped(), f"ship one: python -m primus_megatron.generate_schema megatron-{version}.json"
    done = python("primus_megatron.generate_schema", str(tmp_path / "schema.json"))
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "schema.json").read_text()) == json.loads(shipped()[version].read_text())


def test_without_megatron_the_newest_schema_plans() -> None:
    schema, notes = schema_for(Installation(""), sys.executable)
    assert schema.version == list(shipped())[-1]
    assert "not installed" in notes[0]


@pytest.mark.parametrize("version", ["0.16.1", "0.20.0", "1.0"])
def test_a_version_that_cannot_be_run_is_refused_by_name(version: str) -> None:
    with pytest.raises(MachineError, match=rf"megatron-core {version} is installed.*0\.17, 0\.18 and 0\.19"):
        schema_for(Installation(version), sys.executable)


def test_a_version_without_schema_is_asked(tmp_path: Path) -> None:
    stub = tmp_path / "python"
    stub.write_text(f'#!/bin/sh\necho a warning first\ncp {list(shipped().values())[-1]} "$3"\n')
    stub.chmod(0o755)
    schema, notes = schema_for(Installation("0.19.99"), str(stub))
    assert "train_iters" in schema.options
    assert "slow" in notes[0]


def test_the_schema_knows_types_defaults_and_choices() -> None:
    options = load(shipped()["0.19.2"]).options
    assert options["swiglu"].type == "bool"
    assert options["bias_swiglu_fusion"].default is True, "the flag is --no-bias-swiglu-fusion"
    assert options["attention_backend"].choices == ("flash", "fused", "unfused", "local", "auto")
    assert options["train_data_path"].type == "list"
    assert all(option.help for option in map(options.get, ("train_iters", "lr", "seq_length")) if option)
