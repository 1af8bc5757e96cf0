"""The backend `maxtext`: from an experiment to what the worker reads, without importing JAX."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from primus_core.config.document import Document
from primus_core.errors import ConfigError, Mistakes, PrimusError
from primus_core.plan.plan import Requirement, Step, Variable, Worker
from primus_machine.packages import version_of
from primus_maxtext import checkpoints, device, own_file
from primus_maxtext.continuation import changeable, continue_earlier, fixed
from primus_maxtext.contradictions import CONTRADICTIONS
from primus_maxtext.hyperparameters import hyperparameters
from primus_maxtext.layout import UNKNOWN, Layout, check_layout
from primus_maxtext.own_settings import SETTINGS
from primus_maxtext.schema import Schema, schema_for
from primus_maxtext.settings import TAKEN, Settings
from primus_maxtext.text import PATHS, Data, is_unsplit, refuse_evaluation
from primus_train.backend import BackendCall, BackendPlan
from primus_train.kit import contradictions
from primus_train.kit.outside_writers import wandb_variables
from primus_train.kit.work import ComputeCost, planned

if TYPE_CHECKING:
    from primus_train.migration import Migration
    from primus_train.models.architecture import Architecture, Model
    from primus_train.paths import PathKind
    from primus_train.profiling import ProfiledSteps

__all__ = ["MAXTEXT", "MaxText"]

_ARCHITECTURE = (
    "decoder_block", "base_emb_dim", "base_num_query_heads", "base_num_kv_heads", "head_dim", "base_mlp_dim",
    "base_num_decoder_layers", "vocab_size", "mlp_activations", "logits_via_embedding", "attention_type", "num_experts",
    "num_experts_per_tok", "base_moe_mlp_dim", "shared_experts", "first_num_dense_layers", "use_qk_norm",
    "attention_bias", "rope_type", "rope_max_timescale", "sliding_window_size", "q_lora_rank", "kv_lora_rank",
    "mtp_num_layers", "global_parameter_scale", "scan_layers",
)  # fmt: skip
"""What makes a checkpoint another model's."""
_MOST_STEPS = 2**31 - 1
_DATA = (
    *("dataset_", "hf_", "grain_", "mmap_", "token", "add_bos", "add_eos", "packing", "train_split", "train_data"),
    *("eval_split", "eval_data", "enable_data", "data_shuffle", "max_corpus", "offline_data"),
)
"""How settings begin that say what is trained on."""


class MaxText:
    """MaxText's pre-training as a backend of `train`."""

    name = "maxtext"
    stages: tuple[str, ...] = ("pretrain",)

    def presets(self) -> str:
        """The folder of shipped presets."""
        return str(Path(__file__).parent / "presets")

    def paths(self) -> Mapping[str, PathKind]:
        """MaxText's settings that are paths."""
        return PATHS

    def adopt(self, document: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """An experiment made from a MaxText configuration file."""
        return own_file.adopt(document)

    def translate(self, model: Model) -> Mapping[str, Any]:
        """MaxText's settings for a model of the catalogue; see `Backend.translate`."""
        from primus_maxtext import translation  # pydantic, which a model written out does not need

        schema, _ = schema_for(version_of("maxtext"), sys.executable)
        return translation.translate(model, schema)

    def profiling(self, steps: ProfiledSteps, directory: str) -> Mapping[str, Any]:
        """JAX's profiler in every process; see `Backend.profiling`. The worker leads what it writes to `traces`."""
        del directory  # MaxText has one folder for what it writes
        return {
            "profiler": "xplane",
            "skip_first_n_steps_for_profiler": steps.first - 1,
            "profiler_steps": steps.number,
            "upload_all_profiler_results": True,
        }

    def migration(self, version: str) -> Migration:
        """Settings that MaxText renamed or removed; see `Backend.migration`."""
        from primus_maxtext import migration  # only for `primus config migrate`

        return migration.to_version(version)

    def resolve(self, call: BackendCall) -> BackendPlan:
        """Translate and check the settings; see `Backend.resolve`."""
        schema, notes = schema_for(version_of("maxtext"), call.facts.python)
        return _Resolution(call, schema, list(notes)).plan()


MAXTEXT = MaxText()
"""What the entry point names."""


def _refuse_two_models(settings: Document, model: Document, schema: Schema) -> None:
    """Beside a whole architecture below `model`, `model_name` would change nothing."""
    name = settings.data.get("model_name")
    if name in schema.models and name != model.data.get("model_name") and model.data.keys() >= _WHOLE:
        what = f"'model_name: {name}' has no effect beside 'model'"
        where, why = settings.where(("model_name",)), "`model` sets the whole architecture"
        raise ConfigError(what, where=where, why=why, fix="keep one of them")


_WHOLE = frozenset(("decoder_block", "base_emb_dim"))
"""What says that a `model` is an architecture, not changes of another one."""


class _Resolution:
    """One call of `resolve`, in steps."""

    def __init__(self, call: BackendCall, schema: Schema, notes: list[str]) -> None:
        self.call, self.schema, self.notes = call, schema, notes
        document = call.document
        rest = Document({k: v for k, v in document.data.items() if k not in ("model", "data")}, document.marks)
        mistakes, self.data = Mistakes(), None
        with mistakes:
            self.data = None if call.is_refused("data") else Data(document.section(("data",)), call)
        model = document.section(("model",))
        with mistakes:
            _refuse_two_models(rest, model, schema)
        self.settings = Settings(
            rest.merged_onto(self.data.model(model) if self.data else model), schema, call.refused_flat
        )
        self.settings.mistakes.add(*mistakes.found)
        self.device = call.device

    def checked(self) -> tuple[tuple[Step, ...], list[Requirement], Layout, int]:
        """Fill in the defaults, and refuse what is wrong: all mistakes at once. The steps that prepare the data, what
        they require, the layout, and the sequences of a step.
        """
        settings = self.settings
        steps: tuple[Step, ...] = ()
        files: list[Requirement] = []
        layout, batch = UNKNOWN, 1
        with settings.mistakes:
            device.refuse_variables(self.call, settings)
        if settings.without_effect:
            self.notes.append(f"ignored, because Primus sets it itself: {', '.join(settings.without_effect)}")
        with settings.mistakes:
            if "checkpoint_period" in settings and not settings["enable_checkpointing"]:
                self.notes.append("no checkpoint is saved: enable_checkpointing is false")
        with settings.mistakes:
            steps, files = self.applied()
        with settings.mistakes:
            self.length()
        for name in ("abort_on_nan_loss", "abort_on_inf_loss"):
            settings.default(name, False)  # `on_non_finite` decides, unless the experiment says otherwise
        with settings.mistakes:
            self.notes += device.adapt(settings, self.call, self.device)
        with settings.mistakes:
            layout = self.layout()
        with settings.mistakes:
            batch = self.sequences(layout)
        contradictions.refuse(settings, layout, CONTRADICTIONS)
        with settings.mistakes:
            settings.needs((*files, *self.folders()), self.call)
        settings.refuse()
        self.notes += checkpoints.shared(self.call, saves=settings["enable_checkpointing"])
        return steps, files, layout, batch

    def resolved(self, layout: Layout, architecture: Architecture | None) -> dict[str, Any]:
        """What the worker gets beside the settings."""
        settings = self.settings
        return {
            "framework": "maxtext",
            "framework_version": self.schema.version,
            "stage": self.call.stage,
            "device": self.device,
            "model": {name: settings[name] for name in _ARCHITECTURE},
            "data": self.data.to_dict() if self.data else None,
            "samples": self.data.told() if self.data else None,
            "data_parallel": layout.data,
            "metrics_rank": 0,
            "on_non_finite": self.call.on_non_finite,
            **self.work(architecture).to_dict(),
        }

    def plan(self) -> BackendPlan:
        settings = self.settings
        steps, files, layout, batch = self.checked()
        architecture = self.architecture()
        resolved = self.resolved(layout, architecture)
        same = hyperparameters(settings, architecture, batch, resolved["data"] or {})
        source, found = continue_earlier(settings, self.call)
        self.notes += found
        run = os.path.dirname(os.path.dirname(source))
        start, source = ("", source) if not self.call.weights_only else (run, "")
        return BackendPlan(
            worker=Worker("primus_maxtext.worker", launcher="one-per-node"),
            config={**resolved, "hyperparameters": same.to_dict(), "continue_from": source, "settings": self.given()},
            prepare=steps,
            environment=(*device.variables(self.call, self.device), *self.reporting(run)),
            requires=(*self.modules(), *files, *self.folders()),
            notes=tuple(self.notes),
            data=settings.named(_DATA),
            layout=layout.shown(),
            tokens_per_step=batch * settings["max_target_length"],
            defaults={name: option.default for name, option in settings.options.items()},
            own=tuple(one.name for one in SETTINGS),
            continues=run if source else "",
            starts_from=start,
            loads=(*([source] if source else []), *(folder.name for folder in self.folders() if folder.kind == "file")),
            changeable=changeable(settings, own_reader=bool(resolved["samples"])),
            fixed=fixed(settings, own_reader=bool(resolved["samples"])),
        )

    def applied(self) -> tuple[tuple[Step, ...], list[Requirement]]:
        """What prepares the data, and what must be there."""
        if self.data is None:
            self.settings.refused |= {"vocab_size", *TAKEN}
            if not self.call.is_refused("data") and is_unsplit(self.call.document.section(("data",)).data):
                refuse_evaluation(self.settings)
            return (), []
        try:
            return self.data.apply(self.settings)
        except PrimusError:  # what else the data may contradict is not known
            self.settings.refused |= {*TAKEN}
            raise

    def length(self) -> None:
        """How many steps there are: MaxText takes them from the schedule of the learning rate where nobody says."""
        settings = self.settings
        for name, other in (("steps", "learning_rate_schedule_steps"), ("learning_rate_schedule_steps", "steps")):
            if settings[name] == -1:
                settings.set(name, settings[other])
        if not 1 <= settings["steps"] <= _MOST_STEPS:
            why = f"it must be from 1 to {_MOST_STEPS}, because JAX counts in 32 bits"
            raise settings.error("steps", f"'steps' is {settings['steps']}", why=why, fix="set the number of steps")

    def layout(self) -> Layout:
        if self.call.distributed.tentative:
            note = "the number of devices is not known yet: the layout is checked on the nodes"
            self.notes.append(note)
        return check_layout(self.settings, self.call.distributed, gpu=self.device == "gpu")

    def sequences(self, layout: Layout) -> int:
        """In a step; a device may have a part of one."""
        settings = self.settings
        micro = settings["per_device_batch_size"] * layout.devices
        if micro < 1 or micro != int(micro):
            what = f"'per_device_batch_size' is {settings['per_device_batch_size']}, on {layout.devices} devices"
            fix = f"set it to a multiple of {1 / layout.devices:g}, such as {max(round(micro), 1) / layout.devices:g}"
            raise settings.error(
                "per_device_batch_size", what, why=f"{micro:g} sequences are not a whole batch", fix=fix
            )
        return int(micro) * int(settings["gradient_accumulation_steps"])

    def architecture(self) -> Architecture | None:
        """The model as the catalogue would describe it, where it has words for it."""
        from primus_maxtext.architecture import architecture  # pydantic, after all cheap checks

        model = architecture(self.settings)
        if isinstance(model, str):
            self.notes.append(f"FLOPs are counted by MaxText: {model}")
        return None if isinstance(model, str) else model

    def work(self, model: Architecture | None) -> ComputeCost:
        """What a token costs by the catalogue's arithmetic."""
        devices = self.call.devices
        work, notes = planned(model, self.settings["max_target_length"], devices, device.dtype(self.settings))
        self.notes += notes
        return work

    def modules(self) -> list[Requirement]:
        return device.requires(self.settings, self.device)

    def folders(self) -> list[Requirement]:
        """The cache to write in, and the checkpoint to start from, where they are of this file system."""
        rows: tuple[tuple[Literal["file", "folder"], str, str, str], ...] = (
            ("folder", "jax_cache_dir", "", "a writable folder"),
            ("file", "load_parameters_path", "/_METADATA", "the folder `items` of a checkpoint of MaxText"),
            ("file", "load_full_state_path", "", "a checkpoint's folder"),
        )
        found = []
        for kind, name, inside, what in rows:
            if (value := self.settings[name]) and "://" not in value:
                path = os.path.join(self.call.facts.cwd, os.path.expanduser(value))
                found.append(Requirement(kind, path + inside * os.path.isdir(path), f"set {name} to {what}"))
        return found

    def reporting(self, source: str) -> tuple[Variable, ...]:
        """The environment of Weights & Biases, where it is enabled. MaxText names no folder for its files."""
        if not self.settings["enable_wandb"]:
            return ()
        folder = Variable("WANDB_DIR", self.call.place.directory, "wandb", "its files belong to the run")
        return (*wandb_variables(self.call.place, source), folder)

    def given(self) -> dict[str, Any]:
        """What MaxText is told: where the run is, and every setting that is not its default anyway."""
        folder = self.call.place.directory
        return {
            **self.settings.framework(),
            "base_output_directory": os.path.dirname(folder),
            "run_name": os.path.basename(folder),
            "override_model_config": True,
            "hardware": "gpu",
        }
