"""The backend `megatron`: from an experiment to what the worker reads, without importing Megatron."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from primus_core.config.document import Document
from primus_core.errors import ConfigError, MachineError, Mistakes
from primus_core.plan.plan import Requirement, Step, Variable, Worker
from primus_megatron import fork_settings
from primus_megatron.checkpoints import TRACKER, fault, loaded, newest_whole
from primus_megatron.continuation import CHANGEABLE, CHECKPOINTS, FIXED, continue_earlier, on_replay
from primus_megatron.contradictions import CONTRADICTIONS
from primus_megatron.device import Adaptation, adapt, cpu_variables
from primus_megatron.hybrid import check_hybrid
from primus_megatron.hyperparameters import data_type, hyperparameters
from primus_megatron.installation import Installation, importable_version, installation
from primus_megatron.layout import Layout, check_layout
from primus_megatron.migration import to_version
from primus_megatron.own_settings import SETTINGS, SPEED
from primus_megatron.requirements import modules
from primus_megatron.schedule import check_schedule
from primus_megatron.schema import Schema, schema_for
from primus_megatron.settings import Settings, require
from primus_megatron.text import PATHS, Text, apply_text, data_files, lacks_validation, resolve_text
from primus_megatron.token_ids import check_token_ids
from primus_megatron.turbo import check_turbo
from primus_megatron.vocabulary import choose_tokenizer, of_model, tokenizer_files
from primus_train.backend import WANDB, BackendCall, BackendPlan
from primus_train.kit import contradictions, versions
from primus_train.kit.outside_writers import wandb_variables
from primus_train.kit.work import ComputeCost, planned, planned_ranks
from primus_train.profiling import TRACES

if TYPE_CHECKING:
    from primus_train.migration import Migration
    from primus_train.models.architecture import Architecture, Model
    from primus_train.paths import PathKind
    from primus_train.profiling import ProfiledSteps

__all__ = ["MEGATRON", "Megatron"]

_TESTED = "2.13"
"""The oldest torch that we test with."""
_ORIGIN = "megatron"
_NEEDED = ("num_layers", "hidden_size", "num_attention_heads", "micro_batch_size", "seq_length", "train_iters", "lr")
_ARCHITECTURE = (
    "num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "kv_channels",
    "vocab_size", "swiglu", "normalization", "position_embedding_type", "untie_embeddings_and_output_weights",
    "add_bias_linear", "add_qkv_bias", "qk_layernorm", "num_experts", "moe_ffn_hidden_size", "moe_layer_freq",
    "multi_latent_attention", "mtp_num_layers", "rotary_base", "use_rope_scaling", "rope_scaling_factor",
    "rotary_scaling_factor", "quick_geglu", "qk_l2_norm", "softmax_type", "window_size",
    "no_rope_freq", "moe_apply_probs_on_input",
)  # fmt: skip
"""What makes a checkpoint another model's."""
_OF_DATA = {"vocab_size", "tokenizer_type"}
"""What prepared text says, and nobody knows where that is wrong."""
_LOADED = ("load", "pretrained_checkpoint")
_SHARDED = ("use_torch_fsdp2", "use_megatron_fsdp")
_DATA = (
    *("data_", "train_data", "valid_data", "test_data", "per_split", "split", "mock_data", "dataloader"),
    *("tokenizer", "vocab_file", "merge_file", "null_tokenizer", "tiktoken", "special_tokens"),
)
"""How settings begin that say what is trained on."""


class Megatron:
    """Megatron's own training loop as a backend of `train`."""

    name = "megatron"
    stages: tuple[str, ...] = ("pretrain",)

    def presets(self) -> str:
        """The folder of shipped presets."""
        return str(Path(__file__).parent / "presets")

    def paths(self) -> Mapping[str, PathKind]:
        """Megatron's settings that are paths."""
        return PATHS

    def adopt(self, document: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Megatron has no files of its own form: its settings are words on a command line."""
        return None

    def translate(self, model: Model) -> Mapping[str, Any]:
        """Megatron's arguments for a model of the catalogue; see `Backend.translate`."""
        from primus_megatron import translation  # pydantic, which a model written out does not need

        schema, _ = schema_for(Installation(importable_version(), known=False), sys.executable)
        return translation.translate(model, schema.version, {*schema.options, *(own.name for own in SETTINGS)})

    def profiling(self, steps: ProfiledSteps, directory: str) -> Mapping[str, Any]:
        """Torch's profiler on every rank; see `Backend.profiling`. It writes beside the folder for TensorBoard."""
        return {
            "profile": True,
            "use_pytorch_profiler": True,
            "profile_step_start": steps.first,
            "profile_step_end": steps.last + 1,
            "profile_ranks": [],
            "tensorboard_dir": os.path.join(directory, TRACES, "tensorboard"),
        }

    def migration(self, version: str) -> Migration:
        """Settings that Megatron renamed or removed; see `Backend.migration`."""
        return to_version(version)

    def resolve(self, call: BackendCall) -> BackendPlan:
        """Translate and check the settings; see `Backend.resolve`."""
        megatron = installation(call)
        schema, notes = schema_for(megatron, call.facts.python)
        older = versions.older_note("torch", _TESTED, "Megatron may need a newer one") if megatron.known else ()
        return _Resolution(call, megatron, schema, [*notes, *older]).plan()


MEGATRON = Megatron()
"""What the entry point names."""


class _Resolution:
    """One call of `resolve`, in steps."""

    def __init__(self, call: BackendCall, megatron: Installation, schema: Schema, notes: list[str]) -> None:
        self.call, self.megatron, self.schema, self.notes = call, megatron, schema, notes
        document = call.document
        rest = Document({k: v for k, v in document.data.items() if k not in ("model", "data")}, document.marks)
        mistakes, self.text = Mistakes(), None
        self.text_is_wrong = call.is_refused("data")
        if not self.text_is_wrong:
            with mistakes:
                self.text = resolve_text(document.section(("data",)), call)
            self.text_is_wrong = bool(mistakes)
        brings_tokenizer = isinstance(self.text, Text) or self.text_is_wrong
        model = of_model(
            document.section(("model",)), rest, text=brings_tokenizer, tokens=bool(self.text) or brings_tokenizer
        )
        known = {*schema.options, *(own.name for own in SETTINGS)}
        translated, ignored = fork_settings.translate(rest.merged_onto(model), known)
        self.notes += ignored
        self.settings = Settings(translated, schema, call.refused_flat)
        self.settings.mistakes.add(*mistakes.found)
        self.device = call.device
        self.files: list[Requirement] = []

    def checked(self) -> tuple[tuple[Step, ...], Layout, tuple[Requirement, ...]]:
        """Fill in defaults, and refuse all mistakes at once: the steps for the data, the layout, what is required."""
        settings = self.settings
        prepare: tuple[Step, ...] = ()
        adapted, turbo, layout = Adaptation(), list[Requirement](), Layout(1, 1, 1, 1, stages_inside_data=False)
        with settings.mistakes:
            prepare = self.data()
        settings.check(*(lambda s, name=name: require(s, name) for name in _NEEDED))
        parts = (self.evaluation, self.tokenizer, self.translate, self.writers, self.check_of_losses, self.checkpoints)
        for part in parts:
            with settings.mistakes:
                part()
        with settings.mistakes:
            adapted = adapt(settings, self.device, self.megatron)
        with settings.mistakes:
            turbo, notes = check_turbo(settings)
            self.notes += [*adapted.notes, *notes]
            turbo += check_hybrid(settings, self.schema.version, self.device)
        with settings.mistakes:
            layout, notes = check_layout(settings, planned_ranks(self.call.distributed, self.notes))
            self.notes += notes
        settings.check(check_schedule)
        contradictions.refuse(settings, layout, CONTRADICTIONS)
        settings.needs(self.files, self.call)
        settings.refuse()
        return prepare, layout, (*adapted.requires, *turbo)

    def resolved(self, layout: Layout, architecture: Architecture | None) -> dict[str, Any]:
        """What the worker gets beside the settings."""
        settings = self.settings
        return {
            "framework": "megatron",
            "framework_version": self.schema.version,
            "checkout": self.megatron.checkout,
            "stage": self.call.stage,
            "device": self.device,
            "model": {name: settings[name] for name in _ARCHITECTURE if settings.knows(name)},
            "data": self.text.to_dict() if self.text else None,
            "data_parallel": layout.data,
            "fixed_layout": self.fixed_layout(),
            "metrics_rank": layout.metrics_rank,
            "own": settings.own(),
            "on_non_finite": self.call.on_non_finite,
            **self.work(architecture).to_dict(),
        }

    def plan(self) -> BackendPlan:
        settings = self.settings
        prepare, layout, requires = self.checked()
        architecture = self.architecture()
        resolved = self.resolved(layout, architecture)
        same = hyperparameters(settings, architecture, self.sequences(layout), resolved["data"] or {})
        source, found = continue_earlier(settings, self.call, resolved)
        self.notes += found
        return BackendPlan(
            worker=Worker("primus_megatron.worker"),
            config={
                **resolved,
                "hyperparameters": same.to_dict(),
                "settings": settings.framework(),
                "on_replay": on_replay(settings, self.call),
            },
            prepare=prepare,
            environment=(*self.environment(), *self.reporting(source)),
            requires=(*modules(self.settings, self.megatron), *requires, *self.files),
            notes=tuple(self.notes),
            data=settings.named(_DATA),
            metrics_rank=layout.metrics_rank,
            layout={**layout.sizes(), "expert": settings["expert_model_parallel_size"]},
            tokens_per_step=self.sequences(layout) * settings["seq_length"],
            defaults={name: option.default for name, option in settings.options.items()},
            own=tuple(one.name for one in SETTINGS),
            continues="" if self.call.weights_only else source,
            starts_from=source if self.call.weights_only else "",
            loads=self.loads(),
            changeable=CHANGEABLE,
            fixed=FIXED,
        )

    def sequences(self, layout: Layout) -> int:
        """In a step; Megatron's own number is one micro-batch for each data-parallel rank."""
        total: int = self.settings["global_batch_size"] or self.settings["micro_batch_size"] * layout.data
        return total

    def architecture(self) -> Architecture | None:
        """The model, where the catalogue has words for it."""
        from primus_megatron.architecture import architecture, fit_experts  # pydantic, after all cheap checks

        settings = self.settings
        if settings["num_experts"]:
            self.notes += fit_experts(settings)
        model = architecture(settings)
        if isinstance(model, str):
            self.notes.append(f"FLOPs are counted by Megatron: {model}")
            return None
        return model

    def work(self, model: Architecture | None) -> ComputeCost:
        """What a token costs by the catalogue's arithmetic."""
        devices = self.call.devices
        work, notes = planned(model, self.settings["seq_length"], devices, data_type(self.settings))
        self.notes += notes
        return work

    def data(self) -> tuple[Step, ...]:
        """The steps that prepare it; what must be there otherwise is in `files`."""
        if cache := self.settings["data_cache_path"]:
            fix = "set 'data_cache_path' to a writable folder"
            self.files.append(Requirement("folder", os.path.join(self.call.facts.cwd, cache), fix))
        self.settings.default("data_cache_path", os.path.join(self.call.place.directory, "cache"))
        if self.text_is_wrong:
            self.settings.refused |= _OF_DATA
            return ()
        if self.text:
            self.files += self.text.requires()
            try:
                return apply_text(self.text, self.settings, self.call)
            except ConfigError:
                self.settings.refused |= _OF_DATA
                raise
        self.files += data_files(self.settings, self.call.facts.cwd, known=self.megatron.known)
        return ()

    def evaluation(self) -> None:
        settings = self.settings
        settings.default("max_position_embeddings", settings["seq_length"])
        settings.default("eval_interval", settings["train_iters"])  # Megatron divides by it, even without evaluation
        if settings["eval_iters"] and (why := lacks_validation(settings)):
            settings.set("eval_iters", 0)
            self.notes.append(f"no evaluation: {why}")

    def tokenizer(self) -> None:
        choose_tokenizer(self.settings)
        self.files += tokenizer_files(self.settings, self.call.facts.cwd)
        if not self.text and self.megatron.known:  # what a step prepares, that step checks
            check_token_ids(self.settings, self.call.facts.cwd)

    def translate(self) -> None:
        """Primus's own settings, as `own_settings` says what they become."""
        settings = self.settings
        if settings["tensor_model_parallel_size"] == 1 and settings["sequence_parallel"]:
            settings.set("sequence_parallel", False)  # Megatron does so, too: there is nobody to share with
        if settings["norm_epsilon"] is not None:
            settings.default("layernorm_epsilon", settings["norm_epsilon"])
        unused = [row for row in SETTINGS if row.becomes == "-" and row.name in settings and settings[row.name]]
        for why, is_speed in (("Primus writes logs and metrics", False), ("they select kernels of AMD's Primus", True)):
            if names := [row.name for row in unused if (row.meaning == SPEED) is is_speed]:
                self.notes.append(f"ignored, because {why}: {', '.join(names)}")
        if self.device == "gpu" and not (settings["bf16"] or settings["fp16"]):
            self.notes.append("it trains in float32: neither bf16 nor fp16 is set")
        if settings["bf16"] and settings["fp16"]:
            given = "fp16" if "fp16" in settings else "bf16"
            what, fix = "'bf16' and 'fp16' are both true", "set one of them to false"
            settings.mistakes.add(settings.error(given, what, fix=fix))

    def writers(self) -> None:
        """TensorBoard, and Weights & Biases, which Megatron tells only what it writes for TensorBoard."""
        settings, run = self.settings, self.call.place
        if settings["disable_wandb"]:
            settings.given.pop("wandb_project", None)
        elif settings["wandb_project"]:
            settings.default("wandb_exp_name", run.run_id)
            settings.default("wandb_save_dir", os.path.join(run.directory, "wandb"))
            if settings["disable_tensorboard"]:
                self.notes.append("TensorBoard is enabled, because Weights & Biases needs it")
            self.files.append(WANDB)
        if settings["wandb_project"] or not settings["disable_tensorboard"]:
            settings.default("tensorboard_dir", os.path.join(run.directory, "tensorboard"))

    def check_of_losses(self) -> None:
        """`on_non_finite` decides, unless Megatron's own check is asked for."""
        settings = self.settings
        asked = not settings.default("check_for_nan_in_loss_and_grad", False)
        if asked and not settings["save"] and not settings["save_interval"]:
            settings.default("rerun_mode", "disabled")  # it saves a checkpoint, and fails where there is no folder

    def checkpoints(self) -> None:
        """Saving is on where there is an interval or a folder for it."""
        settings, cwd = self.settings, self.call.facts.cwd
        if settings["save_interval"] and settings["save_in_run"]:
            settings.default("save", os.path.join(self.call.place.directory, CHECKPOINTS))
        if settings["save"]:
            settings.set("save", os.path.normpath(os.path.join(cwd, settings["save"])))
            self.files.append(Requirement("folder", settings["save"], "set 'save' to a writable folder"))
            settings.default("save_interval", settings["train_iters"])  # Megatron divides by it at the end
            settings.default("exit_signal_handler", True)
        for name in _LOADED:
            if settings[name]:
                folder = os.path.normpath(os.path.join(cwd, settings[name]))
                settings.set(name, folder)
                self.files.append(Requirement("file", folder, f"correct '{name}': it is a folder of checkpoints"))
                self.check_loaded(name)

    def check_loaded(self, name: str) -> None:
        """What Megatron would start without, or fail over on each rank."""
        settings, folder = self.settings, self.settings[name]
        begins = folder == settings["save"] and not os.path.exists(os.path.join(folder, TRACKER))
        if begins or not os.path.exists(folder) or not self.megatron.known:
            return
        if why := fault(folder, settings["ckpt_step"] if name == "load" else None):
            whole = newest_whole(folder)[0]
            fix = f"the newest complete checkpoint: ckpt_step={whole}" if whole else f"correct '{name}', or remove it"
            raise MachineError(f"{settings.where(name)}: '{name}: {folder}' cannot be loaded", why=why, fix=fix)

    def loads(self) -> tuple[str, ...]:
        """The checkpoints that Megatron will load or may continue from, and the checkout whose code it is."""
        settings = self.settings
        folders = {settings[name]: settings["ckpt_step"] if name == "load" else None for name in reversed(_LOADED)}
        if settings["save"] and settings["auto_continue_train"] and (found := newest_whole(settings["save"])[0]):
            folders[settings["save"]] = found
        code = [self.megatron.code] if self.megatron.checkout else []
        return (*code, *(path for folder, step in folders.items() if folder for path in loaded(folder, step)))

    def fixed_layout(self) -> list[int] | None:
        """What a run must have in common with one whose checkpoint it loads; None: Megatron reshards."""
        settings = self.settings
        reshards = not settings["use_distributed_optimizer"] or settings["dist_ckpt_optim_fully_reshardable"]
        if reshards and settings["ckpt_format"] != "torch":
            return None
        return [settings["tensor_model_parallel_size"], settings["pipeline_model_parallel_size"]]

    def environment(self) -> tuple[Variable, ...]:
        order = Variable("CUDA_DEVICE_MAX_CONNECTIONS", *self.queues())
        return (order, *cpu_variables(self.call)) if self.device == "cpu" else (order,)

    def reporting(self, source: str) -> tuple[Variable, ...]:
        """The environment of Weights & Biases, where it is enabled."""
        return wandb_variables(self.call.place, source) if self.settings["wandb_project"] else ()

    def queues(self) -> tuple[str, str, str]:
        """How many a GPU has for kernels, who says so, and why."""
        if any(self.settings[name] for name in _SHARDED):
            return "8", _ORIGIN, "Megatron refuses 1 with sharded parameters: gathering them overlaps with kernels"
        return (
            "1",
            _ORIGIN,
            "Megatron requires it for tensor and context parallelism: kernels keep the order of their launch",
        )
