"""hipBLASLt tuning of a training in stages: `PRIMUS_HIPBLASLT_TUNING_STAGE`, as the documents of AMD's Primus have it.

    1  train some steps with a log of all multiplications      output/tune_hipblaslt/MODEL/gemm_shape/
    2  find the fastest kernel of each, without a training     output/tune_hipblaslt/MODEL/gemm_tune/
    3  train with these kernels
    0  train, and let Transformer Engine try kernels at the first call of each

No stage has run on an AMD GPU here: the formats are recorded, the searches in tests are those of a stand-in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from primus_bench.tuning import options
from primus_core.errors import MachineError, RequestError
from primus_core.plan.plan import Requirement, Step, Variable, Worker
from primus_core.plugins.contracts import TaskCall, TaskPlan
from primus_train.modes import Training

__all__ = ["STAGE", "STAGES", "SWITCH", "Stages"]

SWITCH, STAGE = "PRIMUS_HIPBLASLT_TUNING", "PRIMUS_HIPBLASLT_TUNING_STAGE"
_MODEL, _DETERMINISTIC = "PRIMUS_MODEL", "PRIMUS_DETERMINISTIC"
_OVERRIDE, _LOG_MASK, _LOG_LEVEL = "HIPBLASLT_TUNING_OVERRIDE_FILE", "HIPBLASLT_LOG_MASK", "HIPBLASLT_LOG_LEVEL"
_BENCH_MASK = 32
"""The bit of HIPBLASLT_LOG_MASK that writes a line of `hipblaslt-bench` for each call."""
_STAGES = ("0", "1", "2", "3")
_KNOWN = "known: 0 (Transformer Engine tunes), 1 (write the shapes), 2 (tune), 3 (train with the result)"
_NOT_TORCH = {"maxtext": "XLA tunes the multiplications of MaxText itself (--xla_gpu_autotune_level)"}
_ENGINE = "https://github.com/ROCm/TransformerEngine#gemm-tuning-with-hipblaslt"
_LOGGING = "https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/reference/env-variables.html"
_TUNING = "https://rocm.docs.amd.com/projects/hipBLASLt/en/latest/how-to/how-to-use-hipblaslt-offline-tuning.html"


class _Folders(NamedTuple):
    """Where the stages of one model keep their files."""

    root: str

    @property
    def shapes(self) -> str:
        """The logs of stage 1."""
        return f"{self.root}/gemm_shape"

    @property
    def tuned(self) -> str:
        """What stage 2 finds."""
        return f"{self.root}/gemm_tune"

    @property
    def result(self) -> str:
        """The tuning file."""
        return f"{self.tuned}/tune_hipblas_gemm_results.txt"


class Stages:
    """The mode that these variables ask for (`primus_train.modes`)."""

    def environment(self, training: Training) -> tuple[Variable, ...]:
        """The variables of the ranks in the stage that is asked for."""
        stage = _stage(training.environ)
        if stage is None:
            return ()
        _refuse_framework(training)
        _refuse_contradictions(stage, training.environ)
        return _variables(stage, training)

    def plan(self, training: Training, call: TaskCall, task: TaskPlan) -> TaskPlan:
        """The training as it is in this stage; in stage 2, the search instead of it."""
        stage = _stage(training.environ)
        if stage is None:
            return task._replace(notes=(*task.notes, f"{STAGE} has no effect: {SWITCH}=0"))
        variables, folders = self.environment(training), _folders(training)
        _require_gpu(call)
        whole = task._replace(environment=(*variables, *task.environment))
        if stage == "1":
            return _dumping(whole, call, folders)
        if stage == "2":
            return _tuning(whole, call, folders)
        return _tuned(whole, call, training) if stage == "3" else _by_engine(whole, training)


STAGES = Stages()


def _stage(environ: Mapping[str, str]) -> str | None:
    """The stage; None: it is disabled.

    Raises:
        RequestError: a variable has another value than those that are known.
    """
    switch, stage = environ.get(SWITCH, ""), environ.get(STAGE, "")
    if switch not in ("", "0", "1"):
        raise RequestError(f"{SWITCH} is '{switch}'", why="known: 0 (off), 1 (on)", fix=f"{SWITCH}=1")
    if stage and stage not in _STAGES:
        raise RequestError(f"{STAGE} is '{stage}'", why=_KNOWN, fix=f"{STAGE}=1, then 2, then 3: three commands")
    return None if switch == "0" else stage or "0"


def _refuse_framework(training: Training) -> None:
    if why := _NOT_TORCH.get(training.framework):
        raise RequestError(
            f"{training.framework} has no hipBLASLt tuning in stages", why=why, fix=f"unset {STAGE} {SWITCH}"
        )


def _refuse_contradictions(stage: str, environ: Mapping[str, str]) -> None:
    """Refuse variables with which the stage would do nothing, without a word."""
    if environ.get(_DETERMINISTIC) == "1" and stage != "0":
        raise RequestError(f"{STAGE}={stage} contradicts {_DETERMINISTIC}=1", fix=f"unset {_DETERMINISTIC} or {STAGE}")
    for name, why in _contradictions(stage, environ).items():
        raise RequestError(f"{STAGE}={stage} contradicts {name}='{environ[name]}'", why=why, fix=f"unset {name}")


def _contradictions(stage: str, environ: Mapping[str, str]) -> dict[str, str]:
    mask = environ.get(_LOG_MASK, str(_BENCH_MASK))
    has_bit = mask.isascii() and mask.isdigit() and bool(int(mask[:9]) & _BENCH_MASK)
    reasons = {
        "1": {
            _OVERRIDE: "with it, even if it is empty, hipBLASLt may write no shapes",
            _LOG_LEVEL: f"it replaces {_LOG_MASK}",
            "TE_HIPBLASLT_TUNING_RUN_COUNT": "Transformer Engine would try kernels, whose calls are not a training's",
            **({} if has_bit else {_LOG_MASK: f"its bit {_BENCH_MASK} writes the shapes"}),
        },
        "3": {
            "HIPBLASLT_TUNING_MODE": f"hipBLASLt then ignores {_OVERRIDE}",
            **({_OVERRIDE: "it is empty, and names no tuning file"} if environ.get(_OVERRIDE) == "" else {}),
        },
    }.get(stage, {})
    is_off = {"TE_HIPBLASLT_TUNING_RUN_COUNT": ("", "0")}
    return {name: why for name, why in reasons.items() if name in environ and environ[name] not in is_off.get(name, ())}


def _folders(training: Training) -> _Folders:
    """By the model's name, or by PRIMUS_MODEL, as a folder's name."""
    named = training.environ.get(_MODEL) or training.model or "model"
    return _Folders(os.path.join(training.workspace, "tune_hipblaslt", re.sub(r"[^\w.+-]+|^\.+", "_", named)))


def _variables(stage: str, training: Training) -> tuple[Variable, ...]:
    folders, origin = _folders(training), f"hipBLASLt tuning, stage {stage}"
    if stage == "0":
        return _of_engine(origin, deterministic=training.environ.get(_DETERMINISTIC) == "1")
    if stage == "1":
        log = f"{folders.shapes}/dump_hipblaslt_gemm_shape_{training.node_rank}_%i.txt"
        return (
            Variable(_LOG_MASK, str(_BENCH_MASK), origin, "hipBLASLt writes each multiplication down", source=_LOGGING),
            Variable("HIPBLASLT_LOG_FILE", log, origin, "where to; %i is the process: no two mix", source=_LOGGING),
        )
    why = "hipBLASLt takes the kernels that stage 2 found"
    return (Variable(_OVERRIDE, folders.result, origin, why, source=_TUNING),) if stage == "3" else ()


def _of_engine(origin: str, *, deterministic: bool) -> tuple[Variable, ...]:
    runs, kernels = ("0", "0") if deterministic else ("10", "50")
    why = f"not with {_DETERMINISTIC}=1: what is fastest differs between runs" if deterministic else ""
    return (
        Variable("TE_HIPBLASLT_TUNING_RUN_COUNT", runs, origin,
                 why or "Transformer Engine times each kernel so often at the first call of a shape", source=_ENGINE),
        Variable("TE_HIPBLASLT_TUNING_ALGO_COUNT", kernels, origin,
                 why or "the number of kernels that it tries", source=_ENGINE),
    )  # fmt: skip


def _require_gpu(call: TaskCall) -> None:
    """Raises `MachineError` where it is certain that there is no AMD GPU."""
    if call.facts.host.is_known and not any(gpu.vendor == "amd" for gpu in call.facts.gpus):
        fix = f"unset {STAGE} {SWITCH}; to plan for another machine: --assume-host FILE"
        raise MachineError(f"{STAGE} needs an AMD GPU, and this machine has none", why="hipBLASLt is AMD's", fix=fix)


def _by_engine(task: TaskPlan, training: Training) -> TaskPlan:
    note = f"only Transformer Engine reads the variables of stage 0, and {training.framework} may not use it"
    return task._replace(notes=(*task.notes, *[note] * (training.framework != "megatron")))


def _dumping(task: TaskPlan, call: TaskCall, folders: _Folders) -> TaskPlan:
    note = "hipBLASLt writes a line for each multiplication: train a few steps only"
    make = Step("tuning folder", ("mkdir", "-p", folders.shapes), call.facts.cwd)
    needs = Requirement("folder", folders.shapes, "choose another `workspace:`")
    return task._replace(
        prepare=(make, *task.prepare), requires=(*task.requires, needs), notes=(*task.notes, note), next_steps=()
    )


def _tuning(task: TaskPlan, call: TaskCall, folders: _Folders) -> TaskPlan:
    if call.distributed.nnodes > 1:
        why = "the GPUs of one node share the shapes that all nodes wrote"
        fix = "run stage 2 on one node, and stage 3 on all of them"
        raise RequestError(f"{STAGE}=2 runs on one node, not on {call.distributed.nnodes}", why=why, fix=fix)
    from primus_bench.tuning import calls, stack

    report = ("--output", f"{task.place.directory}/gemm-tune.json")
    words = options.tune_words((folders.shapes,), folders.tuned, call.distributed.gpus_per_node, *report)
    found = stack.find(call.facts.environ) if call.facts.host.is_here else ""
    return task._replace(
        prepare=(),
        worker=Worker(options.WORKER, words, "single"),
        requires=(
            Requirement("file", folders.shapes, f"write the shapes first: {STAGE}=1"),
            Requirement("folder", folders.tuned, "choose another `workspace:`"),
            *[Requirement("command", calls.COMMAND, stack.INSTALL)] * (not found),
        ),
        notes=(f"stage 2 starts no training; its result is {folders.result}",),
        next_steps=(),
        metrics_rank=0,
        continues="",
        loads=(),
    )


def _tuned(task: TaskPlan, call: TaskCall, training: Training) -> TaskPlan:
    """With the tuning file that the person names, or that of stage 2."""
    from primus_bench.tuning import record, stack

    named = training.environ.get(_OVERRIDE)
    path = os.path.join(call.facts.cwd, named) if named else _folders(training).result
    if call.facts.host.is_known:
        fix = f"tune again: {STAGE}=2"
        stack.require_same(record.stack_of(path), stack.of_facts(call.facts), path, fix)
    needs = Requirement("file", path, f"tune first: {STAGE}=1, then {STAGE}=2")
    note = "check with `primus bench gemm-tune verify` that the run uses the tuned kernels"
    return task._replace(requires=(*task.requires, needs), notes=(*task.notes, note))
