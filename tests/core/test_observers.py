"""What goes on beside a launch: each observer is told of each moment, in their order."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.core.run_directories import plan_of

from primus_core.contracts.observer import Observer, Observers, Ranks, RunEnd, Stop
from primus_core.execute import execute, observers
from primus_core.plan.plan import Plan
from primus_core.replay import saved_plan

EXECUTE = Path(execute.__file__).parent


class Asks(Observer):
    """Wants no launch, and looks at ranks that hang for a while."""

    def __init__(self, stop: Stop | None, looks: int = 0) -> None:
        self.wanted, self.looks, self.told = stop, looks, list[str]()

    def before_ranks(self, plan: Plan, environ: Mapping[str, str]) -> Stop | None:
        self.told.append("before_ranks")
        return self.wanted

    def may_end_hung(self, silent_s: float, ranks: Ranks) -> bool:
        self.looks -= 1
        return self.looks < 0

    def ended(self, end: RunEnd) -> None:
        self.told.append(end.status)


def test_the_first_that_wants_no_launch_counts_and_later_ones_are_not_prepared(tmp_path: Path) -> None:
    first, second, third = Asks(None), Asks(Stop("no disk", 1)), Asks(Stop("other", 2))
    assert Observers([first, second, third]).before_ranks(saved_plan.load(json.dumps(plan_of(tmp_path))), {}) == Stop(
        "no disk", 1
    )
    assert (first.told, third.told) == (["before_ranks"], [])


def test_ranks_that_hang_are_ended_once_nobody_looks_at_them_any_more() -> None:
    both = Observers([Asks(None, looks=2), Observer()])
    assert [both.may_end_hung(60.0, {0: 1}) for _ in range(3)] == [False, False, True]


def test_all_are_told_how_it_ended() -> None:
    asked = [Asks(None), Asks(None)]
    Observers([*asked, Observer()]).tell(lambda one: one.ended(RunEnd("completed", 0)))
    assert [one.told for one in asked] == [["completed"], ["completed"]]


@pytest.mark.whole
def test_the_executor_knows_no_observer_by_name() -> None:
    names = {name for name, value in vars(observers).items() if isinstance(value, type) and issubclass(value, Observer)}
    names = (names | {"Lifecycle"}) - {"Observer"}
    for path in (EXECUTE / f"{name}.py" for name in ("execute", "ranks", "outer", "launch")):
        used = {node.id for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Name)}
        assert not used & names, path.name
