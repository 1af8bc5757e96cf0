"""What tests of other packages take from Primus: a way to ask a backend for a plan, the promises that every backend
keeps, and what was logged.

    from primus_core.testing import BackendConformance

    class TestMine(BackendConformance):
        backend = MINE
        settings = {"training": {"steps": 10}}
        misspelt = ("training.stesp", "training.steps")
        frameworks = ("torch", "mine")

pytest collects the class; it needs nothing else. What tasks and workers log, in place of stderr and the run's file:

    with capture_logs() as lines:
        work()
    assert lines == [{"event": "loss spike", "loss": 9.1, "log_level": "warning"}]
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from primus_core.config import files
from primus_core.config.document import Document, Path
from primus_core.errors import ConfigError, RequestError
from primus_core.host import HostRoot
from primus_core.machine.facts import Facts, Gpu
from primus_core.plan.plan import Distributed, RunPlace
from primus_core.training import hyperparameters
from primus_core.training.backend import Backend, BackendCall, BackendPlan

if TYPE_CHECKING:
    from primus_core.models.architecture import Model

__all__ = ["BackendConformance", "capture_logs", "document_of", "facts_of", "resolve"]


@contextmanager
def capture_logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """What all loggers of `primus_core.get_logger` log meanwhile, as `structlog.testing.capture_logs` gives it."""
    from structlog.contextvars import merge_contextvars
    from structlog.testing import LogCapture

    from primus_core.journal.processors import PROCESSORS

    captured, before = LogCapture(), PROCESSORS.copy()
    PROCESSORS[:] = [merge_contextvars, captured]
    try:
        yield captured.entries
    finally:
        PROCESSORS[:] = before


def document_of(data: Mapping[str, Any], place: str = "exp.yaml") -> Document:
    """A document with `data`, where every key claims to stand at `place:1`, `place:2`, ..."""
    marks: dict[Path, str] = {(): place}

    def walk(value: Any, path: Path) -> None:
        if isinstance(value, Mapping):
            for key, below in value.items():
                marks[*path, key] = f"{place}:{len(marks)}"
                walk(below, (*path, key))

    walk(data, ())
    return Document(dict(data), marks)


def facts_of(*, gpus: int = 0, environ: Mapping[str, str] | None = None, cpu_count: int = 2) -> Facts:
    """A machine with so many GPUs (MI300X) and CPUs."""
    host = HostRoot(environ=environ or {})
    devices = tuple(_mi300x(index) for index in range(gpus))
    return Facts(dict(environ or {}), "node0", "/work", 0.0, sys.executable, cpu_count, devices, {}, host)


def _mi300x(index: int) -> Gpu:
    return Gpu(
        vendor="amd",
        pci_address=f"0000:{index:02x}:00.0",
        device_id=0x74A1,
        model="MI300X",
        architecture="gfx942",
        memory_bytes=206141652992,
        gpu=index,
        mode="SPX/NPS1",
    )


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
        said = resolve(self.backend, self.settings).config.get("hyperparameters", {})
        assert set(said) <= set(hyperparameters.NAMES)

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
        from primus_core.models import catalogue

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
            "import json, sys; from importlib import import_module; from primus_core.testing import resolve\n"
            "kind = getattr(import_module(sys.argv[1]), sys.argv[2]); resolve(kind(), json.loads(sys.argv[3]))\n"
            "print([name for name in sys.argv[4:] if name in sys.modules])"
        )
        words = [where, type(self.backend).__name__, json.dumps(self.settings), *self.frameworks]
        result = subprocess.run([sys.executable, "-c", code, *words], text=True, capture_output=True, check=True)
        assert result.stdout.strip() == "[]"
