"""How `verify` makes small trainings of MaxText experiments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tests.conftest import ROOT, Run
from tests.templates import of
from tests.verify.trials import texts, verifier

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from primus_maxtext.verification import VERIFIER
from primus_verify.testing import VerifierConformance

MODELS = list(
    {
        template.model: f"template:{template.backend}/{template.model}/{template.gpu}" for template in of("maxtext")
    }.values()
)
EXAMPLE = str(ROOT / "examples/maxtext/quickstart-cpu.yaml")


class TestTemplates(VerifierConformance):
    framework = "maxtext"
    experiments: ClassVar[tuple[str, ...]] = (MODELS[0], *(one for one in MODELS if "deepseek_v2_lite" in one))


@pytest.mark.full
class TestAllTemplates(VerifierConformance):
    framework = "maxtext"
    experiments: ClassVar[tuple[str, ...]] = tuple(MODELS)


def test_layers_are_taken_apart_along_their_axis() -> None:
    stored = {
        "params.params.decoder.layers.mlp.wo.kernel": np.ones((4, 2, 3)),
        "opt_state.0.mu.params.decoder.decoder_norm.scale": np.ones(4),
        "opt_state.0.count": np.ones(()),
        "nnx_aux.model.decoder.rngs.params.count": np.ones(()),
    }
    found = [(kind, name, array.shape) for kind, name, array in VERIFIER.tensors(stored)]
    assert found == [
        ("weight", "decoder.layers.0.mlp.wo.kernel", (4, 3)),
        ("weight", "decoder.layers.1.mlp.wo.kernel", (4, 3)),
        ("first moment", "decoder.decoder_norm.scale", (4,)),
    ]


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "layout", "said"),
    [
        ("maxtext_doubled", "fsdp=2", "gradient of every parameter is 2 times the reference, from step 1"),
        ("maxtext_norms_halved", "tp=2", "gradient of .*scale is 0.50 of the reference.*tensor parallelism"),
        ("maxtext_not_a_number", "dp=2", "gradient of decoder.logits_dense.kernel is not finite"),
        ("maxtext_first_micro_batch", "mbs=2", "loss is .*, from step 1"),
    ],
)
def test_a_fault_in_maxtext_is_named(fault: str, layout: str, said: str, primus: Run, tmp_path: Path) -> None:
    found = verifier(primus, tmp_path)(EXAMPLE, "--layouts", layout, fault=fault, code=1)
    assert re.search(said, texts(found)), texts(found)


@pytest.mark.full
def test_layouts_of_a_dense_model_are_equal(primus: Run, tmp_path: Path) -> None:
    found = verifier(primus, tmp_path)(EXAMPLE, "--layouts", "repeat=1", "fsdp=2", "tp=2", "mbs=4")
    assert found["verdict"] == "equal", texts(found)
