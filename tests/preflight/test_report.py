"""The HTML report: one page that needs nothing else, of one node or of thousands."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.machine.machines import PCI
from tests.preflight import nodes
from tests.preflight.test_cluster import DRIVER, GEMM, healthy, node, plant

from primus_preflight.checks.check import LACKING
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.thresholds import fix_of
from primus_preflight.verdict import node_report
from primus_preflight.verdict.cluster import Cluster, Expected, expected, judge
from primus_preflight.verdict.node_report import NodeReport
from primus_preflight.views.page import as_html
from primus_preflight.views.report import as_text

NASTY = '<script>alert("x")</script>&\''
VOID = ("meta", "br")


class Page(HTMLParser):
    """What a browser would see: tags that are closed in their order, and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        self.open += [tag] if tag not in VOID else []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if self.open[-1:] != ["style"] else ""

    def marks(self, tag: str) -> list[str]:
        """The classes of all such elements."""
        return [about.get("class") or "" for name, about in self.seen if name == tag]


def page(cluster: Cluster) -> Page:
    """The report, parsed."""
    return Page(as_html(cluster))


def test_the_fix_of_a_clock_names_what_to_install() -> None:
    fix = fix_of("host.clock")
    assert fix.startswith("install chrony, then `systemctl enable --now chronyd` (the unit is `chrony` on Debian")


def test_a_fix_for_several_nodes_names_all_of_them() -> None:
    report = node("n1", *nodes.found(nodes.held(nodes.healthy())))
    assert "`srun --exclude=n2,n3`\n" in as_text(judge([report], wanted=expected("n[1-3]")), 120)
    many = ",".join(sorted(f"node{number}" for number in range(2, 65)))
    wanted = expected("node[2-64]")
    assert f"`srun --exclude={many}`" in as_text(judge([report], wanted=wanted), 120), "it is pasted as a whole"


def test_the_page_says_what_is_wrong_where_and_what_to_do() -> None:
    tree = nodes.healthy()
    tree[f"{PCI}/{nodes.ADDRESSES[3]}/current_link_width"] = "8\n"
    reports = [node("n1", *nodes.found(nodes.held(nodes.healthy()))), node("n2", *nodes.found(nodes.held(tree)))]
    found = page(judge(reports, wanted=expected("n[1-3]")))
    assert "Not fit to train. nodes: 1 fit, 1 not fit, 1 unknown" in found.text
    assert "srun --exclude=n2" in found.text
    for said in (
        "gpu.pcie-width",
        "0000:65:00.0",
        "8 lanes",
        "≥ 16 lanes",
        "data sheets: x16",
        "reseat the GPU",
        "did not report",
    ):
        assert said in found.text, said
    assert found.marks("rect") == ["pass", "fail", "unknown"]
    assert [mark for mark in found.marks("td") if mark][:2] == ["mark fail", "mark unknown"]


@pytest.mark.parametrize(
    ("measured", "unit", "amount"),
    [
        ("1", "GPUs", "1 GPU"),
        ("8", "GPUs", "8 GPUs"),
        ("1", "uncorrected errors", "1 uncorrected error"),
        ("1", "processes", "1 process"),
        ("1", "link losses", "1 link loss"),
        ("1", "GB/s", "1 GB/s"),
        ("1", "µs", "1 µs"),
        ("1", "s", "1 s"),
        ("1", "% of the CPUs", "1 % of the CPUs"),
        ("madvise", "", "madvise"),
        ("", "GPUs", ""),
    ],
)
def test_one_thing_is_told_as_one(measured: str, unit: str, amount: str) -> None:
    assert Finding("gpu.count", "", "pass", measured, unit=unit).amount == amount


@pytest.mark.parametrize(("warnings", "said"), [(1, "1 passed, 1 warning"), (2, "1 passed, 2 warnings")])
def test_one_warning_is_told_as_one(warnings: int, said: str) -> None:
    found = [Finding("gpu.count", str(n), "warn", "1", "≥ 8", "GPUs") for n in range(warnings)]
    shown = as_text(judge([NodeReport("n1", (*found, Finding("gpu.model", "", "pass", "MI300X")))]))
    assert f"findings: {said}\n" in shown
    assert "1 GPU; expected ≥ 8" in shown


def test_a_healthy_node_has_a_page_that_says_so() -> None:
    found = page(judge([node("n1", *nodes.found(nodes.held(nodes.healthy())))]))
    assert "Fit to train. nodes: 1 fit" in found.text
    assert "not as expected" not in found.text
    assert set(found.marks("td")) == {"mark pass"}


def test_unknown_is_not_shown_as_fit() -> None:
    found = page(judge([node("n1", DRIVER)], wanted=Expected(count=2)))
    assert "Incomplete. nodes: 1 fit, 1 without a report" in found.text
    assert ("p", {"class": "verdict unknown"}) in found.seen


def test_values_are_dots_and_outliers_are_marked_by_name() -> None:
    reports = [node(f"n{at}", replace(GEMM, value=600.0 + at)) for at in range(9)]
    found = page(judge([*reports, node("n9", replace(GEMM, value=300.0, measured="300"))]))
    (path,) = [about["d"] or "" for tag, about in found.seen if tag == "path"]
    dots = [float(x) for x in re.findall(r"M([\d.]+) \d+h0", path)]
    (mark,) = [about for tag, about in found.seen if tag == "circle"]
    assert dots == sorted(dots)
    assert len(dots) == 9
    assert mark["class"] == "fail"
    assert float(mark["cx"] or "") < dots[0]
    assert "marked: n9 300" in found.text


def test_of_a_node_with_many_devices_the_worst_is_its_dot() -> None:
    values = {"n1": (600.0, 590.0), "n2": (601.0, 610.0), "n3": (602.0, 580.0)}
    reports = [node(name, *(replace(GEMM, subject=f"{v}", value=v) for v in some)) for name, some in values.items()]
    found = page(judge(reports))
    assert "median 590 of 3" in found.text


def test_equal_values_are_drawn_too() -> None:
    assert "median 600 of 5" in page(judge([node(f"n{at}", GEMM) for at in range(5)])).text


@pytest.mark.full
def test_two_thousand_nodes_are_a_page_of_sane_size_with_a_tile_for_each() -> None:
    reports = healthy(2000)
    planted = plant(reports)
    html = as_html(judge(reports))
    assert len(html) < 1_000_000
    found = Page(html)
    assert found.marks("rect").count("pass") == 1993
    assert found.marks("rect").count("fail") == len(planted) == 7
    assert all(f"{name}: fail" in found.text for name in planted)


def test_a_cluster_where_everything_is_wrong_is_cut_short_and_says_so() -> None:
    bad = [replace(GEMM, status="fail", measured=f"{at}", subject=f"gpu {at}") for at in range(8)]
    reports = [node(f"n{at:04}", *(replace(one, measured=f"{at}.{one.measured}") for one in bad)) for at in range(1000)]
    html = as_html(judge(reports))
    assert len(html) < 1_000_000
    assert "and 7700 more: --output report.json has all" in html
    assert "and 800 more: failing_nodes.txt" in html


def test_whatever_a_node_says_is_escaped_and_the_page_asks_nobody() -> None:
    one = Finding(NASTY, NASTY, "fail", NASTY, NASTY, NASTY, NASTY, NASTY, NASTY, value=1.0, compare="higher")
    html = as_html(judge([node(NASTY, one, model=NASTY), node("n2", replace(one, value=2.0, status="skip"))]))
    found = Page(html)
    assert NASTY in found.text
    assert {tag for tag, _ in found.seen}.isdisjoint({"script", "link", "img", "iframe", "a", "object"})
    assert not re.search(r"url\(|@import", html)
    assert "default-src 'none'" in html.replace("&#x27;", "'")


@pytest.mark.full
def test_the_command_writes_the_page(primus: Run, tmp_path: Path) -> None:
    node_report.write(str(tmp_path / "run/preflight"), node("n1", DRIVER))
    node_report.write(str(tmp_path / "run/preflight"), node("n2", replace(DRIVER, status="fail", fix="load it")))
    done = primus("direct", "--", "preflight", "report", "run", "--output", "out/report.html")
    assert done.returncode == 1
    assert "load it" in Page((tmp_path / "out/report.html").read_text()).text


def test_what_a_capture_lacks_is_said_once() -> None:
    lacking = [
        Finding(f"host.{name}", "", "unknown", why=LACKING, cause="capture", fix="capture it")
        for name in ("thp", "nofile", "shm")
    ]
    other = Finding("gpu.count", "", "unknown", why="no GPU here")
    text = as_text(judge([NodeReport("n1", (*lacking, other))]))
    assert text.count(LACKING) == 1
    assert "host.thp, host.nofile, host.shm" in text
    assert "no GPU here" in text
