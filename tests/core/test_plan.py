"""The plan as JSON: there and back, secrets as markers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_core.errors import ConfigError
from primus_core.plan.plan import SCHEMA, Distributed, Plan, PlannedFile, Requirement, RunPlace, Step, Variable
from primus_core.replay.saved_plan import load
from primus_core.requirements import missing
from primus_machine.secrets.names import SECRET

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
words = st.lists(text, max_size=3).map(tuple)
count = st.integers(0, 99)


def built(part: Callable[..., Any], /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A `part` with these fields. `st.builds` would make up the others of a named tuple, too, and floats may be NaN."""
    return st.fixed_dictionaries(fields).map(lambda found: part(**found))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=5,
)
plans = built(
    Plan,
    schema=st.just(SCHEMA),
    primus_version=text,
    command=words,
    runtime=text,
    task=text,
    place=built(RunPlace, run_id=text, directory=text, link=text, joined=st.booleans()),
    distributed=built(Distributed, nnodes=count, node_rank=count, gpus_per_node=count, master_addr=text),
    environment=st.lists(
        built(Variable, name=text, value=text, origin=text, why=text, secret=st.booleans()), max_size=3
    ).map(tuple),
    steps=st.lists(built(Step, name=text, argv=words, cwd=text, ranks=count, first_rank=count), max_size=2).map(tuple),
    files=st.lists(built(PlannedFile, path=text, text=text), max_size=2).map(tuple),
    requires=st.lists(
        built(Requirement, kind=st.sampled_from(["module", "command", "file"]), name=text, fix=text), max_size=2
    ).map(tuple),
    config=st.none() | st.dictionaries(text, json_values, max_size=3),
    notes=words,
    next_steps=words,
    metrics_rank=count,
    grace_period_s=st.floats(0.1, 100),
    log_file=text,
)


def example(**changes: Any) -> dict[str, Any]:
    """A small plan as JSON values, some of them changed."""
    plan = Plan(
        schema=SCHEMA,
        primus_version="1",
        command=("primus",),
        runtime="direct",
        task="train",
        place=RunPlace("r", "/r", ""),
        distributed=Distributed(),
        environment=(Variable("HF_TOKEN", "hunter22", "--env", secret=True), Variable("A", "1", "--env")),
        steps=(Step("worker", ("true",), "/"),),
    )
    return {**plan.to_dict(), **changes}


@pytest.mark.full
@settings(max_examples=60)
@given(plans)
def test_a_plan_survives_json_except_for_its_secrets(plan: Plan) -> None:
    saved = json.dumps(plan.to_dict())
    again = load(saved)
    assert again.to_dict() == plan.to_dict()
    if not any(variable.secret for variable in plan.environment):
        assert again == plan


@settings(max_examples=30)
@given(plans)
def test_a_secret_leaves_as_a_marker_and_everything_else_as_it_is(plan: Plan) -> None:
    left = plan.to_dict()["environment"]
    for variable, row in zip(plan.environment, left, strict=True):
        assert row["value"] == (SECRET if variable.secret else variable.value)
        assert row["name"] == variable.name


def test_the_value_of_a_secret_is_nowhere_in_the_saved_text() -> None:
    saved = json.dumps(example())
    assert "hunter22" not in saved
    assert load(saved).environment[0] == Variable("HF_TOKEN", SECRET, "--env", secret=True)


def test_the_number_of_ranks_is_nodes_times_gpus() -> None:
    assert Distributed(nnodes=3, gpus_per_node=8).world_size == 24


def test_fields_that_a_later_version_adds_are_left_out() -> None:
    data = example(plan_field=1)
    for part in (data["place"], data["environment"][0], data["steps"][0]):
        part["field"] = 1
    assert load(json.dumps(data)).to_dict() == example()


@pytest.mark.parametrize("data", [example(schema=SCHEMA + 1), {"schema": SCHEMA + 1, "quite": "another form"}])
def test_a_plan_of_another_schema_is_refused_as_such(data: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(json.dumps(data))
    assert (
        caught.value.what
        == f"the plan has schema {SCHEMA + 1}, but this version of Primus reads {SCHEMA - 1} and {SCHEMA}"
    )
    assert caught.value.fix == "use the Primus version that wrote it"


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        "{}",
        '{"schema": 2}',
        json.dumps(example(steps="x")),
        json.dumps(example(place=None)),
    ],
)
def test_what_is_no_plan_is_refused(broken: str) -> None:
    with pytest.raises(ConfigError, match="this is not a plan"):
        load(broken)


def test_modules_that_one_command_installs_are_one_error() -> None:
    needs = [Requirement("module", name, fix) for name, fix in (("a_1", "pip A"), ("b_1", "pip B"), ("a_2", "pip A"))]
    found = missing([*needs, Requirement("file", "/no/1", "f"), Requirement("file", "/no/2", "f")], {})
    assert [(one.what, one.fix) for one in found] == [
        ("Python module 'a_1', 'a_2' not found", "pip A"),
        ("Python module 'b_1' not found", "pip B"),
        ("file '/no/1' not found", "f"),
        ("file '/no/2' not found", "f"),
    ]
