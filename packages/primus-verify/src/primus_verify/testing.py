"""What a backend's tests take from verify: the promises that every verifier keeps.

    from primus_verify.testing import VerifierConformance

    class TestMine(VerifierConformance):
        framework = "mine"
        experiments = ("template:mine/llama3.1_8B/MI300X",)

pytest collects the class; it needs nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from primus_core.plan.plan import Distributed, RunPlace
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import TaskCall
from primus_machine import facts
from primus_machine.host import HostRoot
from primus_train import task as train
from primus_train.models import catalogue
from primus_train.planning import Resolved
from primus_verify.layouts import AXES, Layout, parse
from primus_verify.resolving import arguments, as_experiment, find_verifier, for_its_machine

__all__ = ["VerifierConformance"]


class VerifierConformance:
    """Experiments become small trainings that can be planned, and layouts become settings."""

    framework: ClassVar[str]
    experiments: ClassVar[tuple[str, ...]]
    """Files, or templates such as `template:mine/llama3.1_8B/MI300X`."""

    def test_every_experiment_becomes_a_small_training_that_can_be_planned(self, tmp_path: Path) -> None:
        """On one rank of a CPU, with the settings of the first step and of all others."""
        verifier = find_verifier(self.framework)
        path = tmp_path / "small.yaml"
        degrees = [parse(text, verifier.rank_axes).degrees for text in verifier.layouts]
        for experiment in self.experiments:
            settings = _resolve(experiment, (), itself=True).settings.data
            small = verifier.experiment(settings, shrink=True, layouts=degrees, device="cpu")
            path.write_text(as_experiment(self.framework, small, str(tmp_path)), encoding="utf-8")
            for more in (verifier.steps(1, rate=0.0), {**verifier.steps(3, rate=1e-3), **verifier.seed(7)}):
                words = [f"{key}={value}" for key, value in {**verifier.settings({}), **more}.items()]
                found = _resolve(str(path), words)
                assert found.planned.config["device"] == "cpu", experiment
            assert set(verifier.own(settings)) <= set(AXES), experiment
            assert all(map(str.strip, verifier.unexpressed(settings).values())), (
                "each setting without an axis has a reason"
            )

    def test_every_layout_of_auto_has_settings(self) -> None:
        """And an unknown axis none."""
        verifier = find_verifier(self.framework)
        for text in verifier.layouts:
            layout: Layout = parse(text, verifier.rank_axes)
            batch = verifier.batch([layout.degrees])
            assert isinstance(verifier.settings(layout.degrees, batch), dict)
            assert batch % 8 == 0, "a batch is a multiple of the usual one"
        said = ""
        try:
            verifier.settings({"unknown": 2})
        except ValueError as error:
            said = str(error)
        assert "unknown" in said, "an unknown axis is a ValueError that names it"

    def test_a_weight_without_a_neutral_name_is_a_key_error_and_tokens_have_settings(self) -> None:
        """Of `--against`, which names the weight."""
        verifier = find_verifier(self.framework)
        assert verifier.same_tokens(128), "the section `data` is trained"
        known = True
        try:
            list(verifier.neutral("unknown.weight", np.ones(1), next(iter(catalogue.load().values())).facts))
        except KeyError:
            known = False
        assert not known, "a weight that has no neutral name is a KeyError"


def _resolve(config: str, overrides: Sequence[str], *, itself: bool = False) -> Resolved:
    host = HostRoot()
    here = facts.read(host)._replace(gpus=())
    call = TaskCall((), arguments(config, overrides), here, Distributed(), _place, Catalogue.here(host, ""))
    return train.resolve(for_its_machine(call) if itself else call)


def _place(_: str, name: str) -> RunPlace:
    return RunPlace(name, f"/nowhere/{name}", "")
