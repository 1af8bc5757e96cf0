"""A result says where and when it was measured, and whether the machine was steady meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from primus_bench.ci.golden import Measured
from primus_bench.ci.judge import judge
from primus_bench.comparison.documents import unsteady_cases
from primus_bench.measure.together import Together
from primus_bench.report import about
from primus_bench.report.document import Case, Document
from primus_bench.report.steadiness import steadiness


@pytest.mark.parametrize(
    ("samples", "steady", "why"),
    [
        ([1.0] * 9, None, "no case has 10 samples"),
        ([1.0, 1.01] * 10, True, ""),
        ([1.0] * 10 + [1.2] * 10, False, "copy: the second half took +20%"),
        ([1.2] * 10 + [1.0] * 10, False, "copy: the second half took -17%"),
        ([1.0, 2.0] * 10, False, "copy: half of the samples differ by more than"),
        (([1.0] * 9 + [5.0]) * 2, False, "copy: 10% of the samples took over 3 times the median"),
        ([1.0] * 19 + [9.0], True, ""),
        ([1.0] * 9 + [9.0], True, ""),
        (([1.0] * 9 + [2.5]) * 2, True, ""),
    ],
)
def test_drift_and_spread_of_the_samples_say_whether_it_was_steady(
    samples: list[float], steady: bool | None, why: str
) -> None:
    found = steadiness([("copy", samples, "")])
    assert found["steady"] is steady
    assert str(found["why"]).startswith(why)


def test_all_forms_of_a_result_have_host_date_and_steadiness() -> None:
    case = Case("copy", {}, [1.0] * 20, 1.0, "GB/s", 1.0, verified=True, error=None)
    found = Document("memory", {}, {"host": "n1"}, {}, {}, {"measured": "2026-01-02T03:04:05+0000"}, {}, [case])
    said = about.of(found)
    assert said["measured"] == "on n1, 2026-01-02T03:04:05+0000"
    assert said["steady"] == "yes, by the samples"
    assert found.to_dict()["steadiness"] == {"steady": True, "why": "", "cases": {}}


@pytest.mark.parametrize("count", [5, 20])
def test_a_case_that_did_not_warm_up_is_not_steady_whatever_its_samples_show(count: int) -> None:
    found = Together([1.0, 1.0], [1.0] * count, [1])
    case = Case("copy", {}, unit="GB/s", value=1.0, verified=True, error=None, **found.of_slowest(["n1", "n2"]))
    document = Document("memory", {}, {"host": "n1"}, {}, {}, {}, {}, [case])
    why = "the latency was not steady when the warm-up ended on rank 1"
    assert about.of(document)["steady"] == f"no: copy: {why}"
    assert document.steadiness["cases"] == {"copy": why}


@pytest.mark.parametrize(
    ("steadiness_of_it", "said"),
    [
        ({"steady": True, "why": "", "cases": {}}, None),
        ({"steady": None, "why": "no case has 10 samples", "cases": {}}, "steady: not known: no case has 10 samples"),
        ({"steady": False, "why": "", "cases": {"copy": "the second half took +70%"}},
         "not steady: the second half took +70%"),
    ],
)  # fmt: skip
def test_a_finding_of_ci_says_whether_what_it_compares_was_steady(
    steadiness_of_it: dict[str, Any], said: str | None
) -> None:
    times, slow = {"copy": [1.0] * 9}, {"copy": [35.0] * 9}
    cases = [{"name": "copy", "parameters": {}, "samples": slow["copy"], "median": 35.0, "verified": True}]
    unsteady = unsteady_cases({"cases": cases, "steadiness": steadiness_of_it})
    [found] = judge(Measured(time=times), Measured(time=slow), {"time": 0.1}, unsteady, known=True)
    assert (found.outcome, found.says.startswith("slower: +3400.0% time")) == ("failed", True)
    assert found.says.partition("tolerance 10%")[2] == (f"; {said}" if said else "")


@pytest.mark.parametrize(
    ("golden", "said"),
    [
        ([1.0] * 20, ""),
        ([1.0] * 10 + [1.5] * 10, "; golden value not steady: the second half took +50%"),
        ([1.0, 2.0] * 10, "; golden value not steady: half of the samples differ by more than 67%"),
    ],
)
def test_a_finding_of_ci_says_whether_the_golden_value_was_steady(golden: list[float], said: str) -> None:
    series = Measured(time={"copy": golden}, tokens_per_second=[1 / time for time in golden])
    now = Measured(time={"copy": [0.5] * 20}, tokens_per_second=[2.0] * 20)
    found = judge(series, now, {"time": 0.1, "tokens_per_second": 0.1}, {}, known=True)
    assert [one.says.partition("tolerance 10%")[2] for one in found] == [said, said]
