"""The result as text and as a page."""

from __future__ import annotations

from typing import Any

from primus_verify.page import as_page
from primus_verify.report import as_text, document

REQUEST: dict[str, Any] = {"experiment": "exp <b>", "framework": "megatron", "framework_version": "0.19.2", "steps": 2,
                           "rtol": None, "against": None, "layouts": ["tp=2"]}  # fmt: skip
FINDING = {"text": "gradient of a is 2 times the reference, from step 1", "names": ["a"]}
WORST = {"gradient": {"error": 1.0, "limit": 1e-4, "step": 1, "name": "a"},
         "loss": {"error": 1e-7, "limit": 1e-4, "step": 1, "name": ""}}  # fmt: skip
DIFFERS: dict[str, Any] = {"layout": "tp=2", "ranks": 2, "status": "differs", "why": None, "seconds": 61.0,
                           "findings": [FINDING] * 8, "worst": WORST}  # fmt: skip
REFUSED: dict[str, Any] = {"layout": "cp=2", "ranks": 2, "status": "not tried", "why": "no kernel", "seconds": 0.0,
                           "findings": [], "worst": {}}  # fmt: skip
DEAD = {"name": "a.b", "value": 1, "default": 2, "status": "nothing", "effect": ""}
ALIVE = {"name": "a.c", "value": 1, "default": 2, "status": "changes", "effect": "the loss of step 1"}
FAILED = {"name": "a.d", "value": "x" * 99, "default": 2, "status": "not tried", "log": "trials/one-rank-a-d.log",
          "effect": "KeyError: " + "y" * 99}  # fmt: skip


def test_the_verdict_is_the_worst_and_what_was_not_tried_proves_nothing() -> None:
    equal = {**DIFFERS, "status": "equal"}
    assert document(REQUEST, [equal, DIFFERS], [])["verdict"] == "differs"
    assert document(REQUEST, [equal, {**equal, "status": "failed"}], [])["verdict"] == "failed"
    assert document(REQUEST, [equal, REFUSED], [])["verdict"] == "equal"
    assert document(REQUEST, [REFUSED], [])["verdict"] == "not tried"


def test_the_text_has_a_table_the_first_findings_the_reasons_and_counts() -> None:
    lines = as_text(document(REQUEST, [DIFFERS, REFUSED], [])).splitlines()
    assert lines[0] == "verify: exp <b>, megatron 0.19.2, 2 steps in float32 on made-up tokens"
    assert sum(line.startswith("tp=2: gradient of a") for line in lines) == 6
    assert "tp=2: ... and of 2 more kinds of parameters" in lines
    assert "cp=2: not tried: no kernel" in lines
    assert lines[-1] == "1 differs, 1 not tried"


def test_settings_alone_have_a_table_of_their_own_with_one_line_a_row_and_counts() -> None:
    lines = as_text(document(REQUEST, [], [DEAD, ALIVE, FAILED])).splitlines()
    assert not any("layout" in line for line in lines)
    assert [line.split()[0] for line in lines[4:7]] == ["a.b", "a.c", "a.d"]
    assert "nothing: likely dead" in lines[4]
    assert "not tried: KeyError: yyy" in lines[6]
    assert max(map(len, lines)) < 140
    assert lines[-2:] == [
        "1 changes something, 1 changes nothing: a.b, 1 not tried",
        "a.d: not tried: read trials/one-rank-a-d.log",
    ]


def test_the_verdict_of_settings_alone_says_whether_one_is_dead() -> None:
    found = {name: document(REQUEST, [], settings)["verdict"] for name, settings in
             {"dead": [DEAD, ALIVE], "alive": [ALIVE, FAILED], "none": [FAILED]}.items()}  # fmt: skip
    assert found == {"dead": "dead settings", "alive": "no dead settings", "none": "not tried"}


def test_the_page_counts_as_the_text_does_and_names_the_limit_that_was_asked_for() -> None:
    found = document({**REQUEST, "steps": 1, "rtol": 1e-9}, [DIFFERS, REFUSED], [DEAD, FAILED])
    page = as_page(found)
    assert "1 step in float32 on made-up tokens, gradients to 1e-09 (--rtol)" in page
    assert "1 differs, 1 not tried" in page
    assert "in parentheses what --rtol allows" in page
    assert "0 change something, 1 changes nothing: a.b, 1 not tried" in page
    assert "yyy..." in page


def test_a_tolerance_that_was_given_is_shown() -> None:
    found = document(REQUEST | {"rtol": 0.9}, [DIFFERS], [])
    assert "2 steps in float32 on made-up tokens, gradients to 0.9 (--rtol)" in as_text(found).splitlines()[0]
    assert "gradients to 0.9 (--rtol)" in as_page(found)


def test_a_setting_that_is_no_layout_has_no_ranks() -> None:
    setting = {**REFUSED, "layout": "compile.enable=true", "ranks": 0}
    assert "compile.enable=true  -        not tried  -" in as_text(document(REQUEST, [setting], []))


def test_the_page_has_a_matrix_with_errors_and_limits_and_shows_names_as_text() -> None:
    page = as_page(document(REQUEST, [DIFFERS, REFUSED], [DEAD]))
    assert "✗ 1.0e+00 (1e-04)" in page
    assert "✓ 1.0e-07 (1e-04)" in page
    assert "nothing: likely dead" in page
    assert "exp <b>" not in page
