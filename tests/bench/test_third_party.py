"""Benchmarks of other packages: listed, measured and refused as ours are."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT, Run

from primus_bench.report.document import Case, Document
from primus_bench.report.outcome import publish
from primus_bench.report.sheet import Sheet, as_csv, as_markdown, as_table
from primus_core.errors import PrimusError

BENCHMARK = '''
"""Measure how fast dice roll."""
from primus_core.plan.plan import Worker
from primus_core.plugins.contracts import TaskPlan


class Dice:
    epilog = "examples:\\n  primus direct -- bench dice --sides 20"

    def add_arguments(self, parser):
        parser.add_argument("--sides", type=int, default=6, help="how many each has")

    def plan(self, call):
        return TaskPlan(call.place("output", "dice"), Worker("acme_dice.roll", (str(call.args.sides),), "single"))


DICE = Dice()
'''


@pytest.fixture
def acme(tmp_path: Path) -> dict[str, str]:
    """The environment with packages that bring benchmarks: one that works, and one that does not."""
    package, about = tmp_path / "site/acme_dice", tmp_path / "site/acme_dice-2.0.dist-info"
    for folder in (package, about):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text(BENCHMARK)
    (package / "broken.py").write_text("import a_module_that_nobody_has\n")
    (package / "roll.py").write_text("import sys; print('rolled', sys.argv[1])\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-dice\nVersion: 2.0\n")
    (about / "entry_points.txt").write_text("[primus.benchmarks]\ndice = acme_dice:DICE\ncard = acme_dice.broken:X\n")
    return {"PYTHONPATH": str(tmp_path / "site")}


def test_a_benchmark_of_another_package_is_listed_with_its_own_help(primus: Run, acme: dict[str, str]) -> None:
    whole = primus("direct", "--", "bench", "--help", env=acme)
    assert "Measure how fast dice roll." in whole.stdout
    own = primus("direct", "--", "bench", "dice", "--help", env=acme)
    assert "--sides" in own.stdout
    assert "bench dice --sides 20" in own.stdout


@pytest.mark.full
def test_a_benchmark_of_another_package_runs(primus: Run, acme: dict[str, str], tmp_path: Path) -> None:
    shown = primus("direct", "--", "bench", "dice", "--sides", "20", env=acme, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "rolled 20" in shown.stdout


def test_a_misspelt_name_or_option_is_exit_2_with_a_suggestion(primus: Run, acme: dict[str, str]) -> None:
    for words, near in ((("dicr",), "'dice'"), (("dice", "--side", "3"), "'--sides'")):
        shown = primus("direct", "--dry-run", "--", "bench", *words, env=acme)
        assert shown.returncode == 2
        assert f"did you mean {near}" in shown.stderr


@pytest.mark.full
def test_one_that_cannot_be_imported_breaks_no_other_and_is_exit_3_itself(primus: Run, acme: dict[str, str]) -> None:
    assert primus("direct", "--dry-run", "--", "bench", "dice", env=acme).returncode == 0
    shown = primus("direct", "--dry-run", "--", "bench", "card", env=acme)
    assert shown.returncode == 3
    assert "acme-dice 2.0" in shown.stderr
    assert "a_module_that_nobody_has" in shown.stderr
    assert "broken: " in primus("plugins", env=acme).stdout


def test_completion_knows_the_options_of_a_benchmark(primus: Run, acme: dict[str, str]) -> None:
    shown = primus("__complete", "5", "primus", "direct", "--", "bench", "dice", "--s", env=acme)
    assert shown.stdout.split() == ["--sides"]


@pytest.fixture
def documented(tmp_path: Path) -> Path:
    """The folder of the package that docs/bench-own.md shows, installed by its metadata."""
    page = (ROOT / "docs/bench-own.md").read_text(encoding="utf-8")
    for path, section in re.findall(r"^## (acme-sort/\S+)\n(.*?)(?=^## )", page, re.M | re.S):
        code = re.findall(r"^(?: {4}.*)?$", section, re.M)
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("\n".join(line[4:] for line in code).lstrip("\n") + "\n", encoding="utf-8")
    folder = tmp_path / "acme-sort"
    (folder / "acme_sort/__init__.py").write_text("")
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = folder / "acme_sort-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    for group, entries in project["entry-points"].items():
        lines = "".join(f"{name} = {target}\n" for name, target in entries.items())
        (about / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    return folder


@pytest.mark.full
def test_the_documented_benchmark_is_measured_compared_and_refuses_a_wrong_result(
    primus: Run, documented: Path, tmp_path: Path
) -> None:
    environ = {"PYTHONPATH": str(documented)}
    words = ("direct", "--", "bench", "acme-sort", "--numbers")
    assert "how fast Python sorts" in primus("direct", "--", "bench", "--help", env=environ).stdout
    shown = primus(*words, "1000", "--output", "a.json", "--output", "a.html", env=environ, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "million/s" in shown.stdout
    (case,) = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["cases"]
    assert case["value"] == pytest.approx(0.001 / case["median"])
    compared = primus("bench", "compare", "a.json", "a.json", cwd=tmp_path)
    assert (compared.returncode, "sort/1000" in compared.stdout) == (0, True), compared.stdout + compared.stderr
    refused = primus(*words, "0", env=environ, cwd=tmp_path)
    assert refused.returncode == 2
    assert "'0' is not a whole number from 1" in refused.stderr
    worker = documented / "acme_sort/worker.py"
    right = worker.read_text(encoding="utf-8")
    worker.write_text(right.replace("verified=True", "verified=False"), encoding="utf-8")
    wrong = primus(*words, "1000", env=environ, cwd=tmp_path)
    assert (wrong.returncode, "sort/1000 has a wrong result" in wrong.stderr) == (1, True), wrong.stderr
    assert "million/s" not in wrong.stdout
    worker.write_text(right, encoding="utf-8")
    worker.write_text(worker.read_text(encoding="utf-8").replace("sorted(data)", "list(data)"), encoding="utf-8")
    wrong = primus(*words, "1000", env=environ, cwd=tmp_path)
    assert wrong.returncode == 1
    assert "the numbers are not sorted" in wrong.stderr
    assert "million/s" not in wrong.stdout


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"verified": False, "error": "a seven"},
            "rolls has a wrong result; its speed is not reported\n  why: a seven",
        ),
        ({"verified": False, "samples_s": [], "median_s": None, "value": None}, "rolls has a wrong result"),
        ({"samples_s": [0.5, float("nan")]}, "rolls has 'samples.1' nan"),
        ({"median_s": float("inf")}, "rolls has 'median' inf"),
        ({"value": float("nan")}, "rolls has 'value' nan"),
    ],
)
def test_a_wrong_result_is_not_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], said: str
) -> None:
    case = Case("rolls", {}, [0.5], 0.5, "rolls/s", 2.0, verified=True, error=None)
    found = Document("dice", {}, {}, {}, {}, {}, {}, [replace(case, **changed)])
    sheet = Sheet("Dice", (), {"median_ms": ("median", ".4g")}, [case.record()], {})
    with pytest.raises(PrimusError) as refused:
        publish(found, sheet, [str(tmp_path / "dice.json")], json=False)
    assert (refused.value.exit_code, said in str(refused.value)) == (1, True), refused.value
    assert (capsys.readouterr().out, list(tmp_path.iterdir())) == ("", [])


def test_a_figure_that_nobody_knows_is_no_number_in_any_form() -> None:
    sheet = Sheet("Dice", (), {"speed": ("speed", ".4g")}, [{"speed": float("nan"), "name": "rolls"}], {})
    assert "nan" not in as_table(sheet) + as_markdown(sheet) + as_csv(sheet)
