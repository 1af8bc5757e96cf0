"""What is written about the backend is what it does: the tables, the presets and the examples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from primus_core.config import files
from primus_core.config.document import at
from primus_torchtitan.backend import TORCHTITAN
from primus_torchtitan.own_settings import DATA, MODEL, SETTINGS
from primus_train.backend import BackendPlan
from primus_train.kit.settings import as_markdown
from primus_train.models import catalogue

Resolve = Callable[..., BackendPlan]

ROOT = Path(__file__).resolve().parent.parent.parent
MODELS = catalogue.load()
EXAMPLES = [ROOT / "examples" / "quickstart.yaml", *sorted((ROOT / "examples" / "torchtitan").glob("*.yaml"))]


@pytest.mark.parametrize(
    "table",
    [
        as_markdown(table, "TorchTitan", prefix)
        for table, prefix in ((SETTINGS, ""), (MODEL, "model."), (DATA, "data."))
    ],
)
def test_the_page_has_the_table_as_it_is(table: str) -> None:
    assert table in (ROOT / "docs" / "torchtitan.md").read_text()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_resolves(resolve: Resolve, example: Path) -> None:
    import yaml

    data = files.read(str(example), {}).data
    module = data["modules"]["pre_trainer"]
    settings = dict(module["overrides"])
    for key in ("model", "data"):
        if value := at(module, (key,)):
            settings[key] = TORCHTITAN.translate(MODELS[value]) if isinstance(value, str) else value
    plan = resolve(yaml.safe_dump(settings), ranks=8, gpus=8)
    assert plan.config["settings"]["training.steps"] > 0
