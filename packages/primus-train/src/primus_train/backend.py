"""What a training backend is: a package with one `Backend`, pure, and a worker module that imports the framework.

`resolve` translates an experiment's settings to the framework's and refuses what the framework would refuse, before
any GPU is touched. It imports no framework: the framework's argument list ships with the package (`options`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from primus_core.config.document import Document, Path
from primus_core.errors import ConfigError, RequestError
from primus_core.journal.metrics import OnNonFinite
from primus_core.plan.plan import BACKEND_CONFIG, Distributed, Requirement, RunPlace, Step, Variable, Worker
from primus_machine.facts import Facts, Gpu
from primus_machine.files import plain_json
from primus_machine.files.atomic import regular
from primus_machine.gpus.visible import choosing, hides_gpus, visible
from primus_machine.units import counted

if TYPE_CHECKING:
    from primus_core.plugins.catalogue import Catalogue
    from primus_train.migration import Migration
    from primus_train.models.architecture import Model
    from primus_train.paths import PathKind
    from primus_train.profiling import ProfiledSteps

__all__ = ["WANDB", "Backend", "BackendCall", "BackendPlan", "load_backend", "missing_backend"]

WANDB = Requirement("login", "Weights & Biases", "export WANDB_API_KEY=..., or WANDB_MODE=offline; or disable it")
"""What a run needs that reports there."""


@dataclass(frozen=True, slots=True)
class BackendCall:
    """What `train` asks of a backend: one module of an experiment, merged, with the command line's overrides."""

    stage: str
    """`pretrain`, or another stage that the backend lists."""
    config: Mapping[str, Any]
    """Model, framework preset, overrides and command line, merged in that order; `model` under its own key."""
    document: Document
    """The same with the place of each key: `document.where(path)` is `file:line`, for errors."""
    facts: Facts
    distributed: Distributed
    place: RunPlace
    previous: Callable[[str], tuple[str, ...]] = field(default=lambda _: ())
    """`previous(pattern)`: files matching a glob in the runs that may be continued, newest run first.

    The files of a checkpoint that could not be loaded are left out, if there are others."""
    failed: Callable[[str], str] = field(default=lambda _: "")
    """Why a checkpoint could not be loaded (`failed_loads`); empty: as far as is known, it can be."""
    step: int | None = None
    """The step whose checkpoint the person asked for; None: the newest."""
    weights_only: bool = False
    """Whether training starts from the first step, with the weights of such a checkpoint alone (`--from`)."""
    on_non_finite: OnNonFinite = "stop"
    """What follows a loss that is not finite, as the experiment says: a backend has its framework not end before."""
    elsewhere: bool = False
    """It will be planned again where it runs, with other packages (in a container)."""
    refused: tuple[Path, ...] = ()
    """Settings that are wrong and not in `config`; `()`: a whole file of them. A check that needs one is left out:
    the launch fails anyway, and all other mistakes are reported at the same time (`settings.Settings`)."""

    def earlier(self) -> Mapping[str, Any]:
        """What an earlier attempt of this very run planned (`BackendPlan.config`); empty: this is the first."""
        try:
            with open(f"{self.place.directory}/{BACKEND_CONFIG}", encoding="utf-8", opener=regular) as file:
                return dict(plain_json.loads(file.read()))
        except (OSError, ValueError):
            return {}

    def is_refused(self, section: str) -> bool:
        """Whether anything in a section has been."""
        return any(path[:1] == (section,) for path in self.refused)

    @property
    def refused_flat(self) -> tuple[Path, ...]:
        """`refused` for a framework that has the model's settings among all others."""
        return tuple(path[1:] if path[:1] == ("model",) else path for path in self.refused)

    @property
    def device(self) -> Literal["gpu", "cpu"]:
        """What it trains on: GPUs, where there are some or nobody can know yet, unless the person hid them all."""
        possible = bool(self.facts.gpus) or not self.facts.host.is_known
        return "gpu" if possible and not hides_gpus(self.facts.gpus, self.facts.environ) else "cpu"

    @property
    def devices(self) -> tuple[Gpu, ...]:
        """The GPUs that it trains on, as far as they are known: those that the person left visible."""
        if self.device == "cpu":
            return ()
        return tuple(self.facts.gpus[index] for index in visible(self.facts.gpus, self.facts.environ))

    def require_devices(self) -> None:
        """Refuse more ranks than this node has visible GPUs: each rank trains on one of its own.

        Raises:
            RequestError: there are more.
        """
        count, ranks, environ = len(self.devices), self.distributed.gpus_per_node, self.facts.environ
        if not count or ranks <= count:
            return
        lists = [f"{name}={environ[name]}" for name in choosing(self.facts.gpus, environ)]
        leaves = f"; {' and '.join(lists)} leaves {count} of {len(self.facts.gpus)}" if lists else ""
        # HIP reads CUDA's list only where its own is not set.
        last = "CUDA_VISIBLE_DEVICES" if self.facts.gpus[0].vendor == "nvidia" else "HIP_VISIBLE_DEVICES"
        raise RequestError(
            f"GPUS_PER_NODE is {ranks}, but {counted(count, 'GPU')} can be used",
            why=f"each rank trains on a GPU of its own{leaves}",
            fix=f"set GPUS_PER_NODE={count}; to train on the CPU, hide all GPUs: {last}=-1",
        )


@dataclass(frozen=True, slots=True)
class BackendPlan:
    """How a backend trains: its worker, what the worker reads, and what it needs."""

    worker: Worker
    config: Mapping[str, Any]
    """The framework's resolved settings; `train` saves them as `config/backend_config.json` for the worker.

    Where a replay could not have them all, since it shall begin where this run begins and save nowhere else than in its
    own directory, `on_replay` in it says what it gets instead: `settings`, over those of that name (null: left out),
    `folders`, which it does not write in, and `files`, which it needs.
    """
    prepare: tuple[Step, ...] = ()
    environment: tuple[Variable, ...] = ()
    requires: tuple[Requirement, ...] = ()
    notes: tuple[str, ...] = ()
    metrics_rank: int = 0
    layout: Mapping[str, int] = field(default_factory=dict)
    """How ranks share the work, for people: `{"tensor": 2, "data": 4}`."""
    tokens_per_step: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    """Those of the settings that say what is trained on, for `config/data_config.yaml`."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The framework's defaults, by setting."""
    own: tuple[str, ...] = ()
    """Those of the settings that the backend adds to the framework's: their defaults are Primus's."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """What settings are called that the experiment has under an earlier name, by that name."""
    continues: str = ""
    """The run directory, one of those that `BackendCall.previous` looks in, whose checkpoint it starts from."""
    starts_from: str = ""
    """The same for a run of which only the weights are taken (`BackendCall.weights_only`)."""
    loads: tuple[str, ...] = ()
    """Checkpoints, files or folders, that the framework loads or may load, and code that it takes from a
    folder. Reading a pickle runs what is in it: the launch is refused unless they are trusted (`files.trust`)."""
    changeable: tuple[str, ...] = ()
    """Settings that a continued run may have otherwise, beside `continuation.CHANGEABLE`: patterns of names such as
    `checkpoint.*`. Any other difference is refused, unless the person says `--continue`.
    """
    fixed: tuple[str, ...] = ()
    """Settings that no continued run can have otherwise, since the checkpoint has their form: patterns of names.
    With a `?` in front, only whether one is set counts.
    """


class Backend(Protocol):
    """A training framework behind `train`. Entry-point group `primus.backends`."""

    name: str
    stages: tuple[str, ...]

    def presets(self) -> str:
        """Folder with `models/` and `modules/`, the presets that the package ships."""

    def adopt(self, document: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A Primus experiment made from a whole file in the framework's own form, or None if it is not one."""

    def translate(self, model: Model) -> Mapping[str, Any]:
        """The settings below `model:` that make a model of the catalogue in the framework.

        Raises `RequestError` that names the model and what the framework lacks for it. A backend without this method
        knows no names of the catalogue.
        """

    def paths(self) -> Mapping[str, PathKind]:
        """The settings that are paths: an experiment's are relative to its file, and arrive absolute.

        A backend without this method gets them as they are written.
        """

    def profiling(self, steps: ProfiledSteps, directory: str) -> Mapping[str, Any]:
        """The settings by which the framework traces these steps of the run in `directory`; dotted names are nested.

        A backend without this method has no `--profile`.
        """

    def migration(self, version: str) -> Migration:
        """What became of settings in a version of the framework, which may be short: `0.19`.

        Raises `RequestError` for a version that is not known. A backend without this method has no `config migrate`.
        """

    def resolve(self, call: BackendCall) -> BackendPlan:
        """Translate and validate; imports no framework.

        Raises `ConfigError` with file, line and suggestion, or `SeveralErrors`: all that is wrong.
        """


def missing_backend(catalogue: Catalogue, name: str, where: str) -> ConfigError:
    """The error for a backend that is not here, with the line that names it: exit code 3 if it could be installed."""
    error = catalogue.missing("backends", name)
    placed = ConfigError(error.what, where=where, why=error.why, fix=error.fix)
    placed.exit_code = error.exit_code
    return placed


def load_backend(catalogue: Catalogue, name: str) -> Backend:
    """The installed backend of that name.

    Raises:
        RequestError: there is none.
        MachineError: it is not installed, or cannot be imported.
    """
    return cast("Backend", catalogue.find("backends", name).load())
