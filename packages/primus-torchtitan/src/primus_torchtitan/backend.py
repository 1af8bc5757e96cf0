"""The backend `torchtitan`: from an experiment to what the worker reads, without importing TorchTitan."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_core.config.document import Document
from primus_core.errors import AlreadyRefused, MachineError, Mistakes
from primus_core.plan.plan import Requirement, Step, Variable, Worker
from primus_machine.packages import version_of
from primus_torchtitan import earlier_names
from primus_torchtitan.continuation import (
    changeable_settings,
    continue_earlier,
    fixed_settings,
    loads,
    on_replay,
)
from primus_torchtitan.hyperparameters import data_type, hyperparameters
from primus_torchtitan.layout import Layout, check_layout, metrics_rank
from primus_torchtitan.model import Model as Resolved
from primus_torchtitan.model import resolve_model
from primus_torchtitan.own_settings import SETTINGS
from primus_torchtitan.requirements import requirements
from primus_torchtitan.schema import Schema, schema_for
from primus_torchtitan.settings import Settings
from primus_torchtitan.text import PATHS, TAKEN, Data
from primus_torchtitan.turbo import check_turbo, fp8_parts
from primus_torchtitan.values import check_values
from primus_train.backend import BackendCall, BackendPlan
from primus_train.kit import versions
from primus_train.kit.outside_writers import wandb_variables
from primus_train.kit.work import ComputeCost, planned, planned_ranks
from primus_train.profiling import TRACES

if TYPE_CHECKING:
    from primus_train.migration import Migration
    from primus_train.models.architecture import Architecture, Model
    from primus_train.paths import PathKind
    from primus_train.profiling import ProfiledSteps

__all__ = ["TORCHTITAN", "TorchTitan"]

_TESTED = "2.13"
"""The oldest torch that we test with."""
_TOO_OLD = "2.12"
"""TorchTitan 0.3 cannot be imported with torch 2.11: torch.distributed.fsdp has no DataParallelMeshDims there."""
_ORIGIN = "torchtitan"
_PROFILER_WARMUP = 3
"""Steps that the profiler takes part in before it records; as many as TorchTitan's own default."""
_DATA = ("dataloader.", "validator.dataloader.", "hf_assets_path")
"""How settings begin that say what is trained on."""


class TorchTitan:
    """TorchTitan 0.3 as a backend of `train`."""

    name = "torchtitan"
    stages: tuple[str, ...] = ("pretrain",)

    def presets(self) -> str:
        """The folder of shipped presets."""
        return str(Path(__file__).parent / "presets")

    def paths(self) -> Mapping[str, PathKind]:
        """TorchTitan's settings that are paths."""
        return PATHS

    def adopt(self, document: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """An experiment made from a TorchTitan 0.2 TOML file."""
        return earlier_names.adopt(document)

    def translate(self, model: Model) -> Mapping[str, Any]:
        """The `model` section for a model of the catalogue; see `Backend.translate`."""
        from primus_torchtitan import translation  # pydantic, which a model written out does not need

        schema, _ = schema_for(version_of("torchtitan"), sys.executable)
        return translation.translate(model, schema.families)

    def profiling(self, steps: ProfiledSteps, directory: str) -> Mapping[str, Any]:
        """A cycle of torch's profiler that ends with the last of these steps; see `Backend.profiling`."""
        del directory  # the folder is below it
        return {
            "profiler.enable_profiling": True,
            "profiler.save_traces_folder": TRACES,
            "profiler.profile_freq": steps.last,
            "profiler.profiler_active": steps.number,
            "profiler.profiler_warmup": min(steps.first - 1, _PROFILER_WARMUP),
            "profiler.profiler_repeat": 1,
        }

    def migration(self, version: str) -> Migration:
        """Settings that TorchTitan renamed or removed; see `Backend.migration`."""
        from primus_torchtitan import migration  # only for `primus config migrate`

        return migration.to_version(version)

    def resolve(self, call: BackendCall) -> BackendPlan:
        """Translate and check the settings; see `Backend.resolve`."""
        schema, notes = schema_for(version_of("torchtitan"), call.facts.python)
        mistakes = Mistakes()
        document, more = earlier_names.translate(call.document, mistakes)
        older = () if call.elsewhere else versions.older_note("torch", _TESTED, "TorchTitan may need a newer one")
        if not call.elsewhere and call.facts.host.is_here:
            mistakes.add(*_too_old())
        work = _Resolution(call, schema, document, [*notes, *more, *older])
        work.settings.mistakes.add(*mistakes.found)
        return work.plan()


def _too_old() -> tuple[MachineError, ...]:
    installed = version_of("torch")
    if not installed or versions.release(installed) >= versions.release(_TOO_OLD):
        return ()
    why = f"it takes names from torch that came after {installed}"
    fix = f"install torch {_TESTED} or newer (docs/install.md)"
    return (MachineError(f"TorchTitan 0.3 cannot be imported with torch {installed}", why=why, fix=fix),)


TORCHTITAN = TorchTitan()
"""What the entry point names."""


_ANY_VOCABULARY = 258
_UNKNOWN = Resolved("", None, None, None, None, {})
"""What stands for data and model that have been refused, so that the rest can be checked."""


class _Resolution:
    """One call of `resolve`, in steps."""

    def __init__(self, call: BackendCall, schema: Schema, document: Document, notes: list[str]) -> None:
        self.call, self.schema, self.notes = call, schema, notes
        self.settings = Settings(_without(document, ("model", "data")), schema, call.refused)
        self.data: Data | None = None
        vocab: int | None = _ANY_VOCABULARY
        wrong = Mistakes()
        is_wrong = call.is_refused("data")
        if not is_wrong:
            with wrong:
                self.data = Data(document.section(("data",)), call)
                vocab = self.data.vocab_size
            is_wrong = bool(wrong)
        self.settings.mistakes.add(*wrong.found)
        self.settings.refused |= set(TAKEN if is_wrong else ())
        self.model = _UNKNOWN
        with self.settings.mistakes:
            self.model = self.resolved_model(document.section(("model",)), vocab)
        self.device = call.device

    def resolved_model(self, document: Document, vocab: int | None) -> Resolved:
        if self.call.is_refused("model") or () in self.call.refused or "model" in self.settings.refused:
            raise AlreadyRefused("model")
        tensor = max(self.settings.given.get("parallelism.tensor_parallel_degree", 1), 1)
        return resolve_model(document, self.schema, vocab, tensor)

    def checked(self) -> tuple[tuple[Step, ...], Layout]:
        """Fill in the defaults, and refuse what is wrong: all mistakes at once. The steps that prepare the data, and
        the layout.
        """
        settings = self.settings
        check_values(settings, self.schema, self.call.facts.cwd)
        prepare: tuple[Step, ...] = ()
        layout = Layout(1, 1, 1, 1, 1)
        with settings.mistakes:
            if self.data and self.model.family:
                prepare = self.data.apply(self.model, settings)
        settings.check(check_turbo)
        with settings.mistakes:
            self.defaults()
        with settings.mistakes:
            layout = check_layout(
                settings, planned_ranks(self.call.distributed, self.notes), self.model.facts, self.schema.schedules
            )
        with settings.mistakes:
            settings.needs(self.requires(), self.call)
        settings.refuse()
        if unused := self.data.without_effect(settings) if self.data else []:
            self.notes.append(f"ignored, because Primus reads the data in the worker: {', '.join(unused)}")
        if unused := [row.name for row in SETTINGS if row.becomes == "-" and settings[row.name]]:
            self.notes.append(f"ignored, because they belong to AMD's Primus: {', '.join(unused)}")
        return prepare, layout

    def resolved(self, layout: Layout, rank: int, architecture: Architecture | None) -> dict[str, Any]:
        """What the worker gets beside the settings. `rank`: that of the metrics."""
        return {
            "framework": "torchtitan",
            "framework_version": self.schema.version,
            "stage": self.call.stage,
            "device": self.device,
            "model": self.model.to_dict(),
            "data": self.data.to_dict() if self.data else None,
            "samples": self.data.told() if self.data else None,
            "data_parallel": layout.data,
            "metrics_rank": rank,
            "global_batch_size": self.global_batch(layout.data),
            "mock": self.settings["training.mock_data"],
            "fp8": fp8_parts(self.settings),
            "on_non_finite": self.call.on_non_finite,
            **self.work(architecture).to_dict(),
        }

    def plan(self) -> BackendPlan:
        settings = self.settings
        prepare, layout = self.checked()
        rank = metrics_rank(layout, settings["parallelism.pipeline_parallel_schedule"])
        architecture = self.architecture()
        resolved = self.resolved(layout, rank, architecture)
        same = hyperparameters(settings, architecture, self.global_batch(layout.data), resolved["data"] or {})
        source, found = continue_earlier(settings, self.call, resolved)
        self.notes += found
        return BackendPlan(
            worker=Worker("primus_torchtitan.worker"),
            config={
                **resolved,
                "hyperparameters": same.to_dict(),
                "settings": settings.framework(),
                "on_replay": on_replay(settings, self.call),
            },
            prepare=prepare,
            environment=(*self.environment(rank if layout.pipeline > 1 else None), *self.reporting(source)),
            requires=self.requires(),
            notes=tuple(self.notes),
            data=settings.named(_DATA),
            metrics_rank=rank,
            layout=asdict(layout),
            tokens_per_step=self.global_batch(layout.data) * settings["training.seq_len"],
            defaults={name: option.default for name, option in settings.options.items()},
            own=tuple(one.name for one in SETTINGS),
            renamed=earlier_names.renamed(self.call.document),
            continues="" if self.call.weights_only else source,
            starts_from=source if self.call.weights_only else "",
            loads=loads(settings),
            changeable=changeable_settings(settings, resolved),
            fixed=fixed_settings(settings, resolved),
        )

    def architecture(self) -> Architecture | None:
        """The model, where the catalogue has words for it."""
        from primus_torchtitan.architecture import architecture  # pydantic, after all cheap checks

        model = architecture(self.model)
        if isinstance(model, str):
            self.notes.append(f"FLOPs are counted by TorchTitan: {model}")
            return None
        return model

    def work(self, model: Architecture | None) -> ComputeCost:
        """What a token costs by the catalogue's arithmetic."""
        devices = self.call.devices
        work, notes = planned(model, self.settings["training.seq_len"], devices, data_type(self.settings))
        self.notes += notes
        return work

    def global_batch(self, data_parallel: int) -> int:
        total: int = self.settings["training.global_batch_size"]
        return total if total > 0 else self.settings["training.local_batch_size"] * data_parallel

    def defaults(self) -> None:
        """What Primus sets where nothing was said."""
        settings = self.settings
        settings.set("dump_folder", self.call.place.directory)
        settings.default("checkpoint.folder", "checkpoints")
        settings.default("metrics.disable_color_printing", True)
        for name in (
            "training.steps",
            "training.seq_len",
            "loss.kind",
            "loss.num_chunks",
            "activation_checkpoint.mode",
        ):
            settings.default(name, settings[name])
        settings.default("optimizer.param_groups", _param_groups(settings))
        if self.model.hf_assets_path:
            settings.default("hf_assets_path", self.model.hf_assets_path)
        self.device_defaults()

    def device_defaults(self) -> None:
        settings = self.settings
        if self.device == "cpu":
            settings.default("training.mixed_precision_param", "float32")  # bfloat16 is emulated on most CPUs
            settings.default("training.disable_cuda_graphs", True)
        if settings["parallelism.pipeline_parallel_degree"] > 1 and settings.default(
            "training.disable_cuda_graphs", True
        ):
            self.notes.append("CUDA graphs are off: they do not support pipeline parallelism")
        torch = version_of("torch")
        older = torch and versions.release(torch) < (2, 14)
        if older:
            settings.default("parallelism.spmd_backend", "partial_dtensor")  # spmd_types needs torch 2.14

    def environment(self, loss_rank: int | None) -> tuple[Variable, ...]:
        found = []
        if self.device == "cpu":
            found += _cpu_variables(self.call, compiles=bool(self.settings["compile.enable"]))
        if loss_rank is not None:
            why = "with pipeline parallelism TorchTitan warns on every rank unless the rank with the loss is named here"
            found.append(Variable("LOG_RANK", str(loss_rank), _ORIGIN, why))
        return tuple(found)

    def reporting(self, source: str) -> tuple[Variable, ...]:
        """The environment of Weights & Biases, where one rank reports there."""
        one = self.settings["metrics.enable_wandb"] and not self.settings["metrics.save_for_all_ranks"]
        return wandb_variables(self.call.place, source) if one else ()

    def requires(self) -> tuple[Requirement, ...]:
        """What must be here when it runs. A dry run only lists it."""
        return requirements(self.settings, self.call, self.model, self.data)


def _without(document: Document, sections: tuple[str, ...]) -> Document:
    return Document({key: value for key, value in document.data.items() if key not in sections}, document.marks)


def _param_groups(settings: Settings) -> list[dict[str, Any]]:
    """One group with every parameter, from the plain settings."""
    value = {name: settings[f"optimizer.{name}"] for name in ("name", "lr", "beta1", "beta2", "eps", "weight_decay")}
    kwargs = {
        "lr": value["lr"],
        "betas": [value["beta1"], value["beta2"]],
        "eps": value["eps"],
        "weight_decay": value["weight_decay"],
    }
    return [{"pattern": ".*", "optimizer_name": value["name"], "optimizer_kwargs": kwargs}]


def _cpu_variables(call: BackendCall, *, compiles: bool) -> list[Variable]:
    threads = max(1, call.facts.cpu_count // call.distributed.gpus_per_node)
    found = [
        Variable("OMP_NUM_THREADS", str(threads), _ORIGIN, f"{call.facts.cpu_count} CPUs shared by the node's ranks"),
        Variable("OMP_WAIT_POLICY", "PASSIVE", _ORIGIN, "threads that spin while they wait slow one another down"),
    ]
    if not compiles:
        why = "without a GPU, attention masks would be compiled with the C++ compiler, at every new shape"
        found.append(Variable("TORCHDYNAMO_DISABLE", "1", _ORIGIN, why))
    return found
