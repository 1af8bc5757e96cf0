"""A result says where and when it was measured, and whether the machine was steady meanwhile."""

from __future__ import annotations

import pytest

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
    ],
)
def test_drift_and_spread_of_the_samples_say_whether_it_was_steady(
    samples: list[float], steady: bool | None, why: str
) -> None:
    found = steadiness([("copy", samples)])
    assert found["steady"] is steady
    assert str(found["why"]).startswith(why)


def test_all_forms_of_a_result_have_host_date_and_steadiness() -> None:
    case = Case("copy", {}, [1.0] * 20, 1.0, "GB/s", 1.0, verified=True, error=None)
    found = Document("memory", {}, {"host": "n1"}, {}, {}, {"measured": "2026-01-02T03:04:05+0000"}, {}, [case])
    said = about.of(found)
    assert said["measured"] == "on n1, 2026-01-02T03:04:05+0000"
    assert said["steady"] == "yes, by the samples"
    assert found.to_dict()["steadiness"] == {"steady": True, "why": ""}
