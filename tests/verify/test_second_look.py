"""Rounding chooses between experts that are nearly equal for a token: a second seed tells that from a fault."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from primus_verify.comparison import Step
from primus_verify.layouts import Layout
from primus_verify.session import Reference, Result, Session
from primus_verify.verdict import Finding

LAYOUT, EXPERTS, DENSE = Layout("cp=2", {"cp": 2}), "layers.1.experts.0.w1", "layers.1.feed_forward.w1"
OFF = Finding("first moment of layers.1.experts.0.w1 is 0.021 off", 3, "first moment", (EXPERTS,), None, 0.021)


def result(status: Any, layout: Layout = LAYOUT) -> Result:
    return Result(layout, status, (OFF,) if status == "differs" else ())


@pytest.mark.parametrize(
    ("name", "layout", "first", "second", "status"),
    [
        (EXPERTS, LAYOUT, "differs", "equal", "equal"),
        (EXPERTS, LAYOUT, "differs", "differs", "differs"),
        (EXPERTS, LAYOUT, "differs", "failed", "differs"),
        (EXPERTS, LAYOUT, "equal", None, "equal"),
        (EXPERTS, LAYOUT, "failed", None, "failed"),
        (EXPERTS, Layout("repeat=1", {"repeat": 1}), "differs", None, "differs"),
        (DENSE, LAYOUT, "differs", None, "differs"),
    ],
)
def test_a_layout_of_experts_that_differs_gets_a_second_seed(
    monkeypatch: pytest.MonkeyPatch, name: str, layout: Layout, first: str, second: str | None, status: str
) -> None:
    """`second` is None where none is tried: it would not be one."""
    looked, said = [result(first, layout), *([result(second, layout)] if second else [])], list[str]()
    trials: Any = SimpleNamespace(verifier=SimpleNamespace(seed=lambda number: {"seed": number}))
    kept: Any = SimpleNamespace(read=lambda name: None, write=lambda name, found: None)
    session = Session(trials, kept, None, said.append, {})
    initial: Any = {("weight", name): 0.0}
    reference = Reference("", initial, [Step(1.0, 1.0, dict)], {}, 1, {}, 1)
    monkeypatch.setattr(Session, "_reference", lambda self, seed: reference)
    monkeypatch.setattr(Session, "_stable_steps", lambda self, found: 1)
    monkeypatch.setattr(Session, "_result", lambda self, layout, of: looked.pop(0))
    [found] = session.verify([layout])
    assert found["status"] == status
    assert looked == []
    if first == "differs" and second == "equal":
        assert found["why"].startswith("differed with the first of two seeds")
        assert OFF.text in found["why"]
