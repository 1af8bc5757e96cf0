"""Why a layout cannot be tried: the layout itself, or only the small model."""

from __future__ import annotations

from typing import Any

import pytest

from primus_core.errors import RequestError
from primus_machine import facts
from primus_machine.host import HostRoot
from primus_torchtitan.verification import VERIFIER as TITAN
from primus_verify.feasibility import Feasibility
from primus_verify.layouts import parse

VERIFIER: Any = TITAN
MODEL = {"family": "llama3", "dim": 64, "n_heads": 4, "vocab_size": 512}


@pytest.fixture
def feasibility() -> Feasibility:
    """A small model of 4 layers that stands for one of 32, on a machine without GPUs."""
    small, whole = (
        VERIFIER.experiment({"model": {**MODEL, "n_layers": layers}}, shrink=False, layouts=[{"pp": 8}], device="cpu")
        for layers in (4, 32)
    )
    here = facts.read(HostRoot())._replace(gpus=())
    return Feasibility(VERIFIER, "torchtitan", small, whole, 16, here)


def test_only_what_the_whole_model_could_do_is_put_down_to_the_small_one(feasibility: Feasibility) -> None:
    reasons = {text: str(feasibility.explain(parse(text, VERIFIER.rank_axes))) for text in ("pp=8", "tp=8", "fsdp=2")}
    assert reasons["pp=8"].endswith("; this is the small model, see --shrink")
    assert "does not divide n_heads" in reasons["tp=8"]
    assert "--shrink" not in reasons["tp=8"]
    assert reasons["fsdp=2"] == "None"


def test_what_auto_cannot_try_is_listed_and_what_was_named_is_refused(feasibility: Feasibility) -> None:
    layout = parse("mbs=2", VERIFIER.rank_axes)
    assert feasibility.not_tried([layout]) == {"mbs=2": "it is what the reference does, too"}
    with pytest.raises(RequestError, match="layout 'mbs=2' cannot be tried"):
        feasibility.not_tried([layout._replace(asked=True)])
