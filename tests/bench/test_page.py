"""The report of a benchmark as a page: charts chosen from the data, every figure, and nothing that a text can do."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bench.test_report import SQUARE, THIN, made
from tests.machine.secret_kinds import KINDS
from tests.report.test_browser import BROWSER, opened

from primus_bench.report import about
from primus_bench.report.charts import charts
from primus_bench.report.document import Case, Document
from primus_bench.report.outcome import publish
from primus_page.chart import Chart

pytestmark = pytest.mark.torch

SIZES = (1024, 2048, 4096, 8192)
FORMS = (".html", ".md", ".csv", ".json")


def case(name: str, parameters: dict[str, Any], value: float | None, samples: int = 20, **derived: Any) -> Case:
    """Around 1 ms."""
    times = [1e-3 * (1 + index % 5 / 100) for index in range(samples)]
    return Case(name, parameters, times, 1.02e-3, "GB/s", value, value is not None, None, derived)


def document(*cases: Case) -> Document:
    """Of another package's benchmark."""
    return Document("other", {}, {"hosts": ["a", "b"]}, {"name": "GPU"}, {}, {}, {}, cases)


def drawn(*cases: Case) -> dict[str, Chart]:
    """By name."""
    return {one.name: one for one in charts(document(*cases))}


def series(chart: Chart) -> dict[str, Any]:
    """The data by the names of the series."""
    return {one["name"]: one["data"] for one in chart.option["series"]}


def test_a_size_that_grows_is_a_curve_for_each_of_what_else_differs() -> None:
    cases = [
        case(f"{operation}/{size}", {"operation": operation, "bytes": size, "ranks": 2, "label": f"{size} B"}, float(size))
        for operation in ("all_reduce", "all_gather") for size in reversed(SIZES)
    ]  # fmt: skip
    found = drawn(*cases)["values-0"]
    assert series(found) == {name: [(float(s), float(s)) for s in SIZES] for name in ("all_reduce", "all_gather")}
    assert (found.option["xAxis"]["type"], found.option["xAxis"]["name"]) == ("log", "bytes")


def test_few_sizes_or_shapes_without_an_order_are_bars() -> None:
    shapes = [case(f"s{m}x{n}", {"m": m, "n": n}, 1.0) for m, n in ((1, 5), (2, 5), (1, 7), (3, 9))]
    for cases in (shapes, shapes[:1]):
        found = drawn(*cases)["values-0"]
        assert found.option["yAxis"]["data"] == [one.name for one in cases]


def test_a_wrong_result_has_no_bar_and_too_few_samples_have_no_distribution() -> None:
    assert drawn(case("wrong", {}, None, 0)) == {}
    assert "latency" not in drawn(case("io", {}, 1.0, 3))
    assert sum(share for _, share in series(drawn(case("one", {}, 1.0))["latency"])["one"]) == pytest.approx(1)


def test_ranks_stand_beside_each_other_relative_to_the_median_if_there_are_several_cases() -> None:
    one = case("one", {}, 1.0, gb_per_s_of_ranks=[2.0, 4.0])
    assert series(drawn(one)["gb_per_s_of_ranks"]) == {"gb per s": [2.0, 4.0]}
    other = case("other", {}, 1.0, gb_per_s_of_ranks=[300.0, 300.0])
    found = drawn(one, other)["gb_per_s_of_ranks"]
    assert series(found)["of the median"] == pytest.approx([(2 / 3 + 1) / 2, (4 / 3 + 1) / 2], rel=1e-5)
    assert found.option["xAxis"]["data"] == ["0 a", "1 b"]


def test_the_roofline_has_the_bend_of_the_device_and_every_case_below_it() -> None:
    found = {one.name: one for one in charts(made("MI300X", SQUARE, THIN)[0])}["roofline-0"]
    limit = series(found)["limit of memory and compute"]
    assert limit[1] == pytest.approx((1307 / 5.3, 1307))
    assert limit[0][1] / limit[0][0] == pytest.approx(5.3)
    assert len(series(found)["torch"]) == len(series(found)["triton"]) == 2
    assert not [one for one in charts(made(kind="cpu")[0]) if one.name.startswith("roofline")]


@pytest.mark.full
def test_device_clocks_power_versions_and_method_are_in_every_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, sheet = made()
    found = replace(
        found, clocks={"cpu_governor": "performance", "gpu_mhz": 2100.4, "gpu_watts": 745.2, "cpu_mhz": None}
    )
    paths = [tmp_path / f"r{form}" for form in FORMS]
    publish(found, sheet, [str(path) for path in paths], json=False)
    said = ("AMD Instinct MI300X", "performance", "2.13", "events on the device", "until the latency is steady")
    for text in (capsys.readouterr().out, *(path.read_text(encoding="utf-8") for path in paths)):
        plain = " ".join(text.split())
        assert all(words in plain for words in said)
        assert re.search(r"GPU 2100 MHz|2100\.4", plain)
        assert re.search(r"GPU 745 W|745\.2", plain)


def test_what_the_machine_does_not_report_is_said() -> None:
    found = about.of(document())
    assert found["clocks"] == found["power"] == "not known: the machine does not report it"


@pytest.mark.full
def test_what_strangers_wrote_is_text_and_secrets_are_masked(tmp_path: Path) -> None:
    text, secret = KINDS["github"]
    found, sheet = made("MI300X", SQUARE._replace(name=f"</script><script>alert(1)</script>{text}"))
    publish(found, sheet, [str(tmp_path / "r.html")], json=True)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert secret not in page
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert "<script>alert(1)" in json.dumps(data)


@pytest.mark.full
@pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
def test_labels_of_charts_are_whole_on_a_desk_and_on_a_phone(tmp_path: Path) -> None:
    names = ["torch/128x128x128/fp32/NN", "all", f"a kernel of {'many words and ' * 6}{'one_long_word' * 4}"]
    ranks: dict[str, Any] = {"gb_per_s_of_ranks": [1.0, 2.0] * 4}
    found = document(*(case(name, {"name": name}, 1.0, **ranks) for name in names))
    found = replace(found, machine={"hosts": [f"node-{n}.gpu.cluster.example.org" for n in range(8)]})
    publish(found, made()[1], [str(tmp_path / "r.html")], json=True)
    for width in (1100, 390):
        seen = opened(tmp_path / "r.html", width=width)
        assert seen["outside"] == []
        assert not [one for one in seen["labels"] if "..." in one or "…" in one]
        assert not [name for name in names if name.replace(" ", "") not in seen["labels"][0]]


@pytest.mark.full
@pytest.mark.skipif(BROWSER is None, reason="chromium is not installed")
def test_a_page_is_drawn_on_a_desk_and_on_a_phone(tmp_path: Path) -> None:
    problems = [SQUARE._replace(m=size, n=size, k=size) for size in SIZES]
    found, sheet = made("MI300X", *problems, ranks=(1.0, 1.1))
    publish(found, sheet, [str(tmp_path / "r.html")], json=True)
    for width in (1280, 390):
        seen = opened(tmp_path / "r.html", width=width)
        assert (seen["errors"], seen["refused"], seen["loaded"]) == ([], [], 0)
        assert seen["drawn"] == str(len(seen["charts"])) == "3", "curves, roofline, ranks"
        assert min(seen["charts"]) > 5
        assert seen["wide"] <= width
