"""What differs between a trial and the reference, and the sentence that says it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from primus_train.kit.known_difference import KnownDifference
from primus_verify.comparison import Step, Tolerance, beyond, compare, without_moments, worst
from primus_verify.verdict import ASKED, describe, explain

NAMES = [
    "embedding.weight",
    *(f"layers.{layer}.{part}" for layer in range(4) for part in ("norm.weight", "mlp.weight")),
    *(f"layers.{layer}.experts.{expert}.weight" for layer in range(4) for expert in range(2)),
]
TOLERANCE = Tolerance.of_reduction(2048)
LATER = "equal until step 1; from step 2 a gradient or the optimizer's state differs"
State = dict[tuple[Any, str], Any]


def state(step: int, noise: float = 0.0, seed: int = 0) -> State:
    """Weights and moments after a step; `noise`: relative errors, as another order of sums makes them."""
    right, errors = np.random.default_rng(step), np.random.default_rng(seed)
    found: State = {}
    for name in NAMES:
        gradient = right.normal(size=(8, 16)).astype(np.float32)
        gradient = gradient * (1 + noise * errors.normal(size=gradient.shape)).astype(np.float32)
        weight = right.normal(size=gradient.shape).astype(np.float32)
        found["weight", name] = weight - np.float32(1e-3) * np.sign(gradient)
        found["first moment", name] = np.float32(0.1) * gradient
        found["second moment", name] = np.float32(0.05) * gradient**2
    return found


START: State = {key: value for key, value in state(1).items() if key[0] == "weight"}
START = {key: value + np.float32(1e-3) * np.sign(state(1)["first moment", key[1]]) for key, value in START.items()}


def steps(noise: float = 0.0, seed: int = 0) -> list[Step]:
    """Two steps of a training."""
    return [Step(7.0 - step + noise, 0.5 * (1 + noise), held(state(step, noise, seed))) for step in (1, 2)]


def held(one: State) -> Callable[[], State]:
    """As a step reads it: always the same, so that a fault stays."""
    return lambda: one


def said(change: Callable[[list[Step]], Any], **degrees: int) -> str:
    """What is said of a trial in which `change` has been at work, a line each."""
    trial = steps()
    changed = change(trial)
    found = beyond(compare(steps(), changed or trial, START, TOLERANCE))
    names = dict.fromkeys(("weight", "first moment", "second moment"), NAMES)
    return "\n".join(finding.text for finding in describe(found, degrees, names))


def scale(quantity: Any, factor: float, *, only: str = "", step: int = 1) -> Callable[[list[Step]], None]:
    """A fault: multiply a quantity of some parameters."""

    def change(trial: list[Step]) -> None:
        data: Any = trial[step - 1].read()
        for kind, name in data:
            if kind == quantity and only in name:
                data[kind, name] = np.float32(factor) * data[kind, name]

    return change


def test_a_trial_that_is_the_reference_is_equal() -> None:
    assert said(lambda trial: None) == ""


@pytest.mark.parametrize("seed", range(200))
def test_rounding_errors_are_no_deviation(seed: int) -> None:
    noise = 2.0**-24 * math.sqrt(2048)
    assert beyond(compare(steps(), steps(noise, seed), START, TOLERANCE)) == []


def test_a_gradient_that_is_divided_once_too_often_is_named_with_its_axis() -> None:
    assert said(scale("first moment", 0.5, only="norm"), tp=2) == (
        "gradient of layers.*.norm.weight is 0.50 of the reference in every layer, from step 1: "
        "divided by 2 once too often, or not summed over tensor parallelism (tp)"
    )


def test_axes_of_one_degree_are_all_named() -> None:
    assert "not summed over sharded data parallelism (fsdp) or tensor parallelism (tp)" in said(
        scale("first moment", 0.5, only="norm"), tp=2, fsdp=2
    )


def test_a_small_deviation_is_shown_beside_what_rounding_explains() -> None:
    assert said(scale("first moment", 1.004)) == (
        "gradient of every parameter is 4.0e-03 off (rounding explains 8.6e-05), from step 1"
    )


def test_a_limit_that_the_person_has_set_is_not_called_rounding() -> None:
    other = steps()
    scale("first moment", 1.001, only="norm")(other)
    found = beyond(compare(steps(), other, START, Tolerance(1e-9)))
    texts = [finding.text for finding in describe(found, {"tp": 2}, {"first moment": NAMES}, ASKED)]
    assert texts
    assert all("--rtol allows 1.0e-09" in text and "rounding" not in text for text in texts)


def test_what_a_framework_is_known_to_do_is_named_and_what_fits_nothing_is_said_to() -> None:
    known = [KnownDifference("tp", r"\.norm\.", r"experts\.", "a norm is wrong (project#1)")]
    names = {"first moment": NAMES}
    for factor, degrees, said in (
        (1.01, {"tp": 2}, "it looks like a known difference: a norm is wrong (project#1)"),
        (1.01, {"pp": 2}, "less than 2% off, which fits no known pattern"),
        (0.5, {"pp": 2}, ""),
        (1.0, {"tp": 2}, ""),
    ):
        other = steps()
        scale("first moment", factor, only="norm")(other)
        findings = describe(beyond(compare(steps(), other, START, TOLERANCE)), degrees, names)
        assert explain(findings, degrees, names, known) == said, (factor, degrees)


def test_two_equal_trainings_that_differ_are_not_deterministic() -> None:
    def change(trial: list[Step]) -> None:
        data: Any = trial[0].read()
        data["first moment", "embedding.weight"] = data["first moment", "embedding.weight"][::-1]

    assert said(change, repeat=1).endswith("two equal trainings differ: something is not deterministic")


def test_a_factor_of_all_gradients_is_one_sentence() -> None:
    assert said(scale("first moment", 2), dp=2) == (
        "gradient of every parameter is 2 times the reference, from step 1: "
        "summed over replicated data parallelism (dp) once too often, or not divided by 2"
    )


def test_layers_of_one_stage_are_named() -> None:
    def change(trial: list[Step]) -> None:
        for layer in (2, 3):
            scale("first moment", 3, only=f"layers.{layer}.mlp")(trial)

    assert said(change, pp=2) == (
        "gradient of layers.*.mlp.weight is 3 times the reference in 2 of 4 layers (2, 3), from step 1"
    )


def test_one_expert_is_named() -> None:
    found = said(scale("first moment", 0.0, only="experts.1"), ep=2)
    assert found == (
        "gradient of layers.*.experts.*.weight is 0.00 of the reference in every layer in 1 of 2 experts (1), from step 1: "
        "it is zero"
    )


def test_a_gradient_in_another_direction_lacks_a_part() -> None:
    def change(trial: list[Step]) -> None:
        data: Any = trial[0].read()
        data["first moment", "embedding.weight"] = data["first moment", "embedding.weight"].copy()
        data["first moment", "embedding.weight"][:4] = 0

    text = said(change, pp=2)
    assert text.startswith("gradient of embedding.weight is 0.67 off, and no multiple of the reference")
    assert text.endswith("part of it is missing or counted twice: not summed over pipeline parallelism (pp)")


def test_a_gradient_that_is_not_a_number_is_named() -> None:
    text = said(scale("first moment", math.nan, only="layers.1.mlp"))
    assert text == "gradient of layers.*.mlp.weight is not finite, or missing in 1 of 4 layers (1), from step 1"


def test_a_loss_that_differs_from_the_first_step_is_the_forward_pass() -> None:
    text = said(lambda trial: [Step(6.1, 0.5, trial[0].read), trial[1]])
    assert text.endswith("from step 1: the forward pass, the data or the loss's scale differs; the weights were equal")


def test_a_loss_that_differs_later_is_a_stale_weight_or_other_data() -> None:
    text = said(lambda trial: [trial[0], Step(5.1, 0.5, trial[1].read)])
    assert text.endswith("from step 2: all was equal until step 1: a rank trains with other weights than were saved, "
                         "or on other data")  # fmt: skip


def test_a_norm_that_differs_beside_equal_gradients_is_not_reduced() -> None:
    text = said(lambda trial: [Step(6.0, 0.4, trial[0].read), trial[1]])
    assert text.startswith("gradient norm is 0.80 of the reference, from step 1: all gradients are equal")


def test_a_weight_that_is_not_updated_is_found() -> None:
    def change(trial: list[Step]) -> None:
        data: Any = trial[0].read()
        data["weight", "embedding.weight"] = START["weight", "embedding.weight"]

    text = said(change)
    assert text == "update of embedding.weight is 0.00 of the reference, from step 1: it is zero"


def test_weights_that_never_had_a_gradient_must_agree_too() -> None:
    """As those of an expert that no token chose."""

    def idle(trial: list[Step]) -> None:
        data: Any = trial[0].read()
        for kind in ("first moment", "second moment"):
            data[kind, "layers.0.mlp.weight"] = np.zeros_like(data[kind, "layers.0.mlp.weight"])

    def wrong(trial: list[Step]) -> None:
        idle(trial)
        data: Any = trial[0].read()
        data["weight", "layers.0.mlp.weight"] = data["weight", "layers.0.mlp.weight"] + np.float32(1e-4)

    reference, trial = steps(), steps()
    idle(reference)
    wrong(trial)
    found = beyond(compare(reference, trial, START, TOLERANCE))
    assert ("weight", "layers.0.mlp.weight") in {(one.quantity, one.name) for one in found}


def test_a_moment_that_is_lost_is_found() -> None:
    text = said(scale("second moment", 0.0, only="layers.0.mlp", step=2))
    assert text.startswith("second moment of layers.*.mlp.weight is 0.00 of the reference in 1 of 4 layers (0), from ")
    assert text.endswith("from step 2: it is zero, " + LATER)


def test_a_gradient_that_differs_later_is_a_moment_that_is_named_before_the_norm() -> None:
    """No gradient is stored after the first step, so that nobody can call it equal."""

    def change(trial: list[Step]) -> list[Step]:
        data: Any = trial[1].read()
        data["first moment", "embedding.weight"] = data["first moment", "embedding.weight"][::-1]
        return [trial[0], Step(trial[1].loss, 0.7, trial[1].read)]

    text = said(change, tp=2)
    assert text.startswith("first moment of embedding.weight is ")
    assert text.endswith(f"and no multiple of the reference, from step 2: {LATER}")


def test_a_gradient_that_is_not_a_number_later_is_named_with_its_parameter() -> None:
    def change(trial: list[Step]) -> list[Step]:
        scale("first moment", math.nan, only="layers.1.mlp", step=2)(trial)
        return [trial[0], Step(trial[1].loss, math.nan, trial[1].read)]

    assert said(change) == (
        f"first moment of layers.*.mlp.weight is not finite, or missing in 1 of 4 layers (1), from step 2: {LATER}"
    )


def test_a_norm_that_differs_later_beside_equal_moments_is_not_reduced() -> None:
    text = said(lambda trial: [trial[0], Step(5.0, 0.3, trial[1].read)])
    assert text.startswith("gradient norm is 0.60 of the reference, from step 2: all moments are equal")


def test_a_parameter_that_is_missing_is_a_deviation() -> None:
    def change(trial: list[Step]) -> None:
        data: Any = trial[0].read()
        del data["first moment", "layers.3.norm.weight"]

    text = said(change)
    assert text == "gradient of layers.*.norm.weight is not finite, or missing in 1 of 4 layers (3), from step 1"


def test_weights_that_move_without_moments_are_known_except_those_that_a_rule_moves() -> None:
    """Nobody could compare their gradients."""
    then = state(1)
    assert without_moments(START, then) == []
    del then["first moment", "layers.0.mlp.weight"]
    del then["first moment", "embedding.weight"], then["second moment", "embedding.weight"]
    for part in "qkv":
        then["weight", f"layers.0.qkv.w{part}.weight"] = np.ones((2, 4))
    for kind in ("first moment", "second moment"):
        then[kind, "layers.0.qkv.wqkv.weight"] = np.ones((6, 4))
    then["weight", "layers.0.moe.expert_bias_E"] = np.ones(2)
    then["weight", "rope.freqs"] = np.ones(2)
    start = {**START, ("weight", "rope.freqs"): np.ones(2)}
    assert without_moments(start, then) == ["embedding", "layers.0"]


def test_the_last_bit_counts_where_two_runs_must_be_equal() -> None:
    assert beyond(compare(steps(), steps(), START, TOLERANCE, exactly=True)) == []
    other = steps()
    data: Any = other[0].read()
    data["weight", "embedding.weight"] = np.nextafter(data["weight", "embedding.weight"], np.float32(9))
    assert beyond(compare(steps(), other, START, TOLERANCE, exactly=True))


def test_the_largest_error_of_each_quantity_is_known_also_where_it_is_rounding() -> None:
    found = worst(compare(steps(), steps(1e-6), START, TOLERANCE))
    assert set(found) == {"loss", "gradient", "gradient norm", "weight", "first moment", "second moment"}
    assert 0 < found["gradient"].error < found["gradient"].limit
    assert found["gradient"].name in NAMES
