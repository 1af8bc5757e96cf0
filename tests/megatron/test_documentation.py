"""What is written about the backend is what it does: the tables and the examples."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12: hatch run megatron:test")

from tests.conftest import ROOT
from tests.planning import Resolve

from primus_core.config import files
from primus_megatron.backend import MEGATRON
from primus_megatron.own_settings import DATA, SETTINGS
from primus_train.kit.settings import as_markdown

PRESET = Path(MEGATRON.presets(), "modules", "pre_trainer.yaml")
EXAMPLES = sorted((ROOT / "examples/megatron").glob("*.yaml"))


@pytest.mark.parametrize("table", [as_markdown(SETTINGS, "Megatron"), as_markdown(DATA, "Megatron", "data.")])
def test_the_page_has_the_table_as_it_is(table: str) -> None:
    assert table in (ROOT / "docs/megatron.md").read_text()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_resolves(resolve: Resolve, example: Path) -> None:
    import yaml

    module = files.read(str(example), {}).data["modules"]["pre_trainer"]
    settings = {**files.read(str(PRESET), {}).data, **module["overrides"]}
    plan = resolve(yaml.safe_dump({**settings, "model": module["model"], "data": module.get("data", {})}), ranks=2)
    assert plan.config["settings"]["train_iters"] > 0
