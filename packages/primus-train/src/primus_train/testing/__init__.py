"""What a backend's own tests take from Primus: a way to ask it for a plan, and the promises that every backend keeps.

    from primus_train.testing import BackendConformance

    class TestMine(BackendConformance):
        backend = MINE
        settings = {"training": {"steps": 10}}
        misspelt = ("training.stesp", "training.steps")
        frameworks = ("torch", "mine")

pytest collects the class; it needs nothing else.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from primus_core.config import files
from primus_core.errors import ConfigError, RequestError
from primus_core.plan.plan import Distributed, RunPlace
from primus_core.testing import document_of, facts_of
from primus_train.backend import Backend, BackendCall, BackendPlan
from primus_train.kit import hyperparameters

if TYPE_CHECKING:
    from primus_train.models.architecture import Model

__all__ = ["BackendConformance", "resolve"]


def resolve(
    backend: Backend, settings: Mapping[str, Any], *, gpus: int = 0, nnodes: int = 1, directory: str = "/run/exp_1"
) -> BackendPlan:
    """The backend's plan for `settings` (as below `overrides:`) on `nnodes` nodes with `gpus` GPUs each (0: CPU)."""
    document = document_of(settings)
    call = BackendCall(
        stage=backend.stages[0],
        config=document.data,
        document=document,
        facts=facts_of(gpus=gpus),
        distributed=Distributed(nnodes=nnodes, gpus_per_node=max(gpus, 1)),
        place=RunPlace(os.path.basename(directory), directory, ""),
    )
    return backend.resolve(call)


def _with(settings: Mapping[str, Any], dotted: str, value: Any) -> dict[str, Any]:
    """`settings` with one more setting."""
    head, _, rest = dotted.partition(".")
    below = settings.get(head, {})
    return {**settings, head: _with(below if isinstance(below, Mapping) else {}, rest, value) if rest else value}


def _refusal(backend: Backend, settings: Mapping[str, Any]) -> ConfigError | None:
    try:
        resolve(backend, settings)
    except ConfigError as error:
        return error
    return None


def _translation(backend: Backend, model: Model) -> tuple[Mapping[str, Any], RequestError | None]:
    try:
        return backend.translate(model), None
    except RequestError as error:
        return {}, error


class BackendConformance:
    """Promises of every backend. Subclass it, and set what stands below."""

    backend: ClassVar[Backend]
    settings: ClassVar[Mapping[str, Any]]
    """The smallest settings that train on one CPU."""
    misspelt: ClassVar[tuple[str, str]]
    """A setting spelt wrong, and the one that was meant."""
    frameworks: ClassVar[tuple[str, ...]] = ()
    """Modules that planning must not import."""

    def test_it_has_a_name_and_a_stage(self) -> None:
        """The name is what an experiment says; `train` offers the stages."""
        assert self.backend.name
        assert self.backend.stages

    def test_every_preset_that_it_ships_can_be_read(self) -> None:
        """Presets are YAML or TOML below `models/` and `modules/`."""
        for folder, _, names in os.walk(self.backend.presets()):
            for name in names:
                if name.endswith((".yaml", ".yml", ".toml")):
                    files.read_extended(os.path.join(folder, name), {})

    def test_a_plan_is_plain_data_and_its_worker_can_be_found(self) -> None:
        """The plan is saved as JSON; the worker module is started by name."""
        plan = resolve(self.backend, self.settings)
        json.dumps(plan.config)
        assert importlib.util.find_spec(plan.worker.module)

    def test_hyperparameters_have_the_names_that_backends_share(self) -> None:
        """By which `primus runs diff` compares this framework's runs with those of others."""
        found = resolve(self.backend, self.settings).config.get("hyperparameters", {})
        assert set(found) <= set(hyperparameters.NAMES)

    def test_planning_is_repeatable(self) -> None:
        """The same call gives the same plan: nothing is remembered, nothing is counted."""
        assert resolve(self.backend, self.settings) == resolve(self.backend, self.settings)

    def test_a_misspelt_setting_is_refused_with_its_place_and_a_suggestion(self) -> None:
        """Before any GPU is touched."""
        wrong, meant = self.misspelt
        error = _refusal(self.backend, _with(self.settings, wrong, 1))
        assert error, f"'{wrong}' was accepted"
        assert "exp.yaml:" in error.where, "the error must name the file and line"
        assert meant in f"{error.why} {error.fix}"

    def test_a_model_of_the_catalogue_is_taken_or_refused_by_its_name(self) -> None:
        """A backend that knows the catalogue has every setting that it translates a model to."""
        from primus_train.models import catalogue

        for model in catalogue.load().values() if hasattr(self.backend, "translate") else ():
            settings, error = _translation(self.backend, model)
            if error:
                assert model.name in error.what, "the error must name the model"
                assert error.why, "the error must name what the framework lacks"
            else:
                json.dumps(settings)
                resolve(self.backend, {**self.settings, "model": settings})

    def test_a_file_of_another_form_is_not_adopted(self) -> None:
        """`adopt` says None to what is not the framework's own."""
        assert self.backend.adopt({"something": {"else": 1}}) is None

    def test_planning_imports_no_framework(self) -> None:
        """Importing one takes seconds, and a login node may not have it."""
        where = f"{type(self.backend).__module__}"
        code = (
            "import json, sys; from importlib import import_module; from primus_train.testing import resolve\n"
            "kind = getattr(import_module(sys.argv[1]), sys.argv[2]); resolve(kind(), json.loads(sys.argv[3]))\n"
            "print([name for name in sys.argv[4:] if name in sys.modules])"
        )
        words = [where, type(self.backend).__name__, json.dumps(self.settings), *self.frameworks]
        result = subprocess.run([sys.executable, "-c", code, *words], text=True, capture_output=True, check=True)
        assert result.stdout.strip() == "[]"
