"""Versions of frameworks have schemas, in the order in which pip compares them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from tests.conftest import ROOT

from primus_train.kit import schemas


@pytest.mark.torch  # primus-data is installed there
@pytest.mark.parametrize("backend", ["torchtitan", "megatron", "maxtext"])
def test_the_names_of_other_tools_lead_to_settings_that_the_backend_has(backend: str) -> None:
    folder = ROOT / f"packages/primus-{backend}/src/primus_{backend}"
    newest = list(schemas.shipped(folder / "schemas", backend).values())[-1]
    own = re.findall(r'PrimusSetting\(\s*"([\w.]+)"', (folder / "own_settings.py").read_text(encoding="utf-8"))
    from primus_data.training import section

    data = {f"data.{one.name}" for one in (*section.rows("", ""), *section.rows_of_prefixes("", ""))}
    options = json.loads(newest.read_text(encoding="utf-8"))["options"]
    known = {*options, *own, *(f"model.{name}" for name in own), *data}
    rows = tomllib.loads((folder / "other_names.toml").read_text(encoding="utf-8"))
    named = {re.split("[=:]", name)[0] for meant in rows.values() for name in meant.split(", ")}
    assert named <= known
    assert not rows.keys() & options.keys(), "a setting of the framework is no other tool's"


def test_the_newest_schema_is_the_one_of_the_newest_version(tmp_path: Path) -> None:
    for version in ("0.19.2rc1", "0.19.10", "0.19.9"):
        (tmp_path / f"it-{version}.json").touch()
    assert list(schemas.shipped(tmp_path, "it")) == ["0.19.2rc1", "0.19.9", "0.19.10"]
