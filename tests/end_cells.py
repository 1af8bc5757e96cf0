"""Tells a training to end at a chosen moment, and judges what it leaves. Cells of a table, and a command for one:

    python -m tests.end_cells torchtitan save term 2

A rank stays at the moment (a gate in `sitecustomize`) until the signal has reached it, so that no clock decides.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import MARK, all_gone, wait_until
from tests.indexed_files import write_indexed
from tests.lab.slurm import Cluster
from tests.project import TASK, Project, rows

from primus_core.journal.events import saved_steps

__all__ = [
    "FOLDERS",
    "MOMENTS",
    "STEPS",
    "STEPS_OF",
    "WAYS",
    "Cell",
    "cells",
    "judge",
    "judge_on_slurm",
    "project_of",
    "whole_steps",
]

MOMENTS = ("start", "first", "step", "evaluation", "save", "last")
WAYS = {"term": 143, "int": 130, "hup": 129, "nohup": 0, "stop": 143}
"""How it is told to end, and the exit code that follows. Under `nohup`, SIGHUP ends nothing."""
STEPS, SAVED = 10, 5
_PATIENCE_S = 280
_GATE = r"""
import os, sys
if os.environ.get("RANK") == os.environ.get("GATE_RANK") and os.environ.get("GATE"):
    import re, time
    def gate():
        try:
            os.close(os.open(os.environ["GATE"] + "/here", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        while not os.path.exists(os.environ["GATE"] + "/go"):
            time.sleep(0.02)
    moment = os.environ["GATE_AT"]
    if moment == "start":
        from primus_train.kit import worker
        theirs = worker.resolved
        worker.resolved = lambda: (gate(), theirs())[1]
    elif moment == "step":
        import primus_core.journal.metrics as metrics
        line = metrics.log_line
        metrics.log_line = lambda row: (gate() if row.step == 7 else None, line(row))[1]
    elif moment in ("first", "evaluation"):
        from primus_train.kit.step_clock import StepClock
        name = {"first": "begin", "evaluation": "evaluating"}[moment]
        ours = getattr(StepClock, name)
        setattr(StepClock, name, lambda clock: (gate(), ours(clock))[1])
    elif moment in ("save", "last"):
        there, inside = re.compile(os.environ["GATE_PATH"]), []
        def hook(event, args):
            if inside or event not in ("open", "os.mkdir", "os.rename"):
                return
            path = os.fsdecode(args[0]) if isinstance(args[0], (str, bytes)) else ""
            if there.search(path) and (event != "open" or args[2] & (os.O_WRONLY | os.O_RDWR)):
                inside.append(1)
                try:
                    gate()
                finally:
                    inside.clear()
        sys.addaudithook(hook)
"""
_EXPERIMENT = """
exp_name: tiny
modules:
  pre_trainer:
    framework: {framework}
    data: {data}
    overrides: {{{settings}}}
"""
_SETTINGS = {
    "torchtitan": """
      model: {family: llama3, dim: 64, n_layers: 2, n_heads: 4, n_kv_heads: 2, ffn_hidden_dim: 128},
      training: {steps: 10, seq_len: 64, local_batch_size: 2}, dataloader: {num_workers: 1},
      checkpoint: {enable: true, interval: 5, keep_latest_k: 2, last_save_model_only: false},
      validator: {enable: true, freq: 4, steps: 1}, metrics: {log_freq: 1, enable_tensorboard: true}""",
    "megatron": """
      num_layers: 2, hidden_size: 64, ffn_hidden_size: 128, num_attention_heads: 4, swiglu: true,
      normalization: RMSNorm, add_bias_linear: false, position_embedding_type: rope, seq_length: 64,
      micro_batch_size: 2, global_batch_size: 4, train_iters: 10, lr: 3e-3, lr_warmup_iters: 2, save_interval: 5,
      eval_interval: 4, eval_iters: 1, log_interval: 1""",
    "maxtext": """
      decoder_block: llama2, base_emb_dim: 64, base_num_query_heads: 4, base_num_kv_heads: 2, head_dim: 16,
      base_mlp_dim: 128, base_num_decoder_layers: 2, mlp_activations: [silu, linear], dtype: float32,
      max_target_length: 64, per_device_batch_size: 2, learning_rate: 3e-3, steps: 10, checkpoint_period: 4,
      eval_interval: 4, eval_steps: 1""",
}
_SETTINGS["maxtext-grain"] = f"""{_SETTINGS["maxtext"].partition("eval_interval")[0]}
      dataset_type: grain, grain_file_type: mmap, grain_train_files: ./indexed, grain_worker_count: 1, vocab_size: 320,
      tokenizer_path: tokenizer.llama2, mmap_eod_id: 319"""
"""MaxText's own reader, whose workers are processes."""
STEPS_OF = {"torchtitan": "training.steps", "megatron": "train_iters", "maxtext": "steps", "maxtext-grain": "steps"}
FOLDERS = {"torchtitan": "step-{}", "megatron": "iter_{:07}", "maxtext": "{}", "maxtext-grain": "{}"}


class Cell(NamedTuple):
    """One of the table."""

    backend: str
    moment: str
    way: str = "term"
    ranks: int = 1
    grace_s: float = 250
    """With less than a save takes, the ranks are killed."""

    @property
    def name(self) -> str:
        return "-".join(map(str, self)).replace(".", "_")

    @property
    def is_killed(self) -> bool:
        """Whether the ranks stay at the gate until they are killed."""
        return self.grace_s < 10


def cells(backend: str) -> list[Cell]:
    """Those that the tests run: each moment by SIGTERM, the other ways at a step, and kills while it saves."""
    at_moments = [Cell(backend, moment, ranks=ranks) for moment in MOMENTS for ranks in (2, 1)]
    by_ways = [Cell(backend, "step", way, ranks=1 + number % 2) for number, way in enumerate(WAYS) if way != "term"]
    return [*at_moments, *by_ways, Cell(backend, "save", grace_s=1), Cell(backend, "last", ranks=2, grace_s=1)]


def project_of(backend: str, folder: Path, cache: Path | None = None) -> Project:
    """A folder for cells of one backend."""
    folder.mkdir(exist_ok=True)
    environ = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    data = "{}" if backend == "maxtext-grain" else "{text: text, vocab_size: 320, document_chars: 500}"
    text = _EXPERIMENT.format(framework=backend.partition("-")[0], settings=_SETTINGS[backend], data=data)
    project = Project(folder, environ, text, cache)
    write_indexed(folder / "indexed", [[*range(1, 200), 319]] * 200, 320)
    (folder / "gate").mkdir()
    (folder / "gate/sitecustomize.py").write_text(_GATE)
    return project


def _environ(cell: Cell, gate: Path) -> dict[str, str]:
    step = {
        "save": SAVED - (cell.backend.startswith("maxtext")),
        "last": STEPS - (cell.backend.startswith("maxtext")),
    }.get(cell.moment, 0)
    folder = FOLDERS[cell.backend].format(step)
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(gate.parent), os.environ.get("PYTHONPATH", "")))),
        "GATE": str(gate), "GATE_AT": cell.moment, "GATE_RANK": "0", "GATE_PATH": rf"/checkpoints/{folder}\b",
        "GPUS_PER_NODE": str(cell.ranks), MARK: uuid.uuid4().hex,
    }  # fmt: skip


def judge(cell: Cell, project: Project) -> list[str]:
    """Run it. What is wrong, one line each; none: it is as it must be."""
    gate = project.folder / "gate" / cell.name
    gate.mkdir()
    environ = _environ(cell, gate)
    words = ("direct", "--grace-period", str(cell.grace_s), *TASK, f"exp_name={cell.name}")
    link = project.folder / "output" / cell.name
    with _ignoring(signal.SIGHUP if cell.way == "nohup" else None):
        process = project.start(*words, **environ)
    with process:
        try:
            wait_until(lambda: (gate / "here").exists() or process.poll() is not None, _PATIENCE_S)
            if process.poll() is not None:
                return ["it ended before the moment", *process.communicate()]
            run = link.resolve()
            _tell(cell, process, project, run)
            if not cell.is_killed:
                (gate / "go").touch()
            _, said = process.communicate(timeout=_PATIENCE_S)
        finally:
            process.kill()
    wait_until(lambda: all_gone(environ), 60)
    (gate / "said").write_text(said)
    return [*_faults(cell, process.returncode, said, run), *_continued(cell, project, run)]


class _ignoring:  # noqa: N801  # used as a statement
    def __init__(self, number: int | None) -> None:
        self.number = number

    def __enter__(self) -> None:
        self.before = signal.signal(self.number, signal.SIG_IGN) if self.number else None

    def __exit__(self, *_: object) -> None:
        if self.number:
            signal.signal(self.number, self.before)


def _tell(cell: Cell, process: subprocess.Popen[str], project: Project, run: Path) -> None:
    """Tell it to end, and wait until that has reached the ranks."""
    if cell.way == "stop":
        stop = [
            str(Path(sys.executable).with_name("primus")),
            "stop",
            "--timeout",
            "1",
            str(run),
        ]  # it waits for the gate
        subprocess.run(stop, env=project.environ, cwd=project.folder, check=False, capture_output=True, timeout=120)
    else:
        process.send_signal(getattr(signal, f"SIG{cell.way.removeprefix('no').upper()}"))
    if cell.way == "nohup":
        return
    wait_until(lambda: process.poll() is not None or any(_events(run, "signal")), 120)
    if not cell.backend.startswith("maxtext"):  # torchrun passes it on
        log = run / "logs/launch.log"
        wait_until(lambda: process.poll() is not None or "closing signal" in log.read_text(), 120)


def _events(run: Path, kind: str) -> Iterator[dict[str, Any]]:
    for line in (run / "logs/events.jsonl").read_text().splitlines():
        if (event := json.loads(line))["event"] == kind:
            yield event


def whole_steps(cell: Cell, run: Path) -> set[int]:
    """The steps of whole checkpoints, as a resumed training would judge them."""
    folder, number = run / "checkpoints", FOLDERS[cell.backend]
    if cell.backend.startswith("maxtext"):
        from primus_maxtext.checkpoints import steps

        return {step + 1 for step in steps(str(folder))}
    whole: Callable[[str], bool]
    unlisted = None
    if cell.backend == "torchtitan":
        from primus_torchtitan.checkpoints import is_whole as whole
    else:
        from primus_megatron.checkpoints import is_whole as whole
        from primus_megatron.checkpoints import unlisted_newest

        unlisted = unlisted_newest(str(folder))  # Megatron deletes the one before it, and then it is listed
    found = (re.fullmatch(number.replace("{:07}", "{}").format(r"(\d+)"), path.name) for path in folder.glob("*"))
    steps_there = [int(match[1]) for match in found if match]
    return {step for step in steps_there if step == unlisted or whole(str(folder / number.format(step)))}


def _faults(cell: Cell, code: int, said: str, run: Path) -> Iterator[str]:
    status = json.loads((run / "metadata.json").read_text())["status"]
    wanted = WAYS[cell.way], "completed" if cell.way == "nohup" else "interrupted"
    if (code, status) != wanted:
        yield f"exit code and status are {code}, {status}, not {wanted}: {said[-2000:]}"
    said_by_us = re.sub(r"Exception ignored in: .*(\n.*)*?\n\w*Error.*", "", said)  # of a framework that tidies up
    if "Traceback" in said_by_us or "  failed rank" in said:
        yield f"something failed: {said[-3000:]}"
    made, whole = [row["step"] for row in rows(run)], whole_steps(cell, run)
    last, newest = max(made, default=0), max(whole, default=0)
    lost = "  lost   no checkpoint of " in said
    if cell.way == "nohup":
        if last != STEPS or lost:
            yield f"it did not train to its end: {last}, {said}"
        return
    if cell.moment == "start" and (last or newest or lost):
        yield f"it trained: {last}, {newest}, {said}"
    if cell.moment != "start" and (newest < max(last, 1)) != lost:
        yield f"steps until {last}, whole checkpoints {sorted(whole)}, and it says: {said}"
    if cell.moment not in ("start", "first") and not last:
        yield f"no steps: {said}"
    if lost and not cell.is_killed:
        yield f"it had time enough: {said}"
    if (told := saved_steps(str(run))) != whole and not (cell.is_killed and told < whole):
        yield f"told of checkpoints of {sorted(told)}, whole are {sorted(whole)}"


def _continued(cell: Cell, project: Project, run: Path) -> Iterator[str]:
    """What is wrong when the same command is typed again, with more steps."""
    newest, there = max(whole_steps(cell, run), default=0), project.folder / "output" / cell.name
    words = [*TASK, f"exp_name={cell.name}", f"{STEPS_OF[cell.backend]}={newest + 3}", "--continue"]
    if not newest:
        words = words[:-1]
    if cell.moment == "start":
        return
    done = project.run("direct", *words, GPUS_PER_NODE=str(cell.ranks))
    made = [row["step"] for row in rows(there.resolve())]
    if done.returncode or made != [newest + 1, newest + 2, newest + 3]:
        yield f"continued with exit code {done.returncode}, steps {made} after {newest}: {done.stderr[-3000:]}"


def judge_on_slurm(way: str, backend: str, project: Project, cluster: Cluster) -> list[str]:
    """The same for a training on two nodes that is told to end at any step: `stop`, `scancel`, `limit`, `preemption`."""
    every = {"torchtitan": "checkpoint.interval", "megatron": "save_interval", "maxtext": "checkpoint_period"}[backend]
    task = (*TASK, f"exp_name={way}", f"{STEPS_OF[backend]}=100000", f"{every}=50000")
    words = ("slurm", "sbatch", "-N2", "--", "direct", "--grace-period", "100", *task)
    job = project(*words, **cluster.environ).stdout.strip()
    link = project.folder / "output" / way
    wait_until(lambda: link.exists() and len(rows(link.resolve())) >= 6, _PATIENCE_S)
    run = link.resolve()
    if way == "stop":
        project.run("stop", str(run), **cluster.environ)
    elif way == "scancel":
        cluster.run("scancel", job)
    elif way == "preemption":
        cluster.run("sbatch", "-N2", "-purgent", "--exclusive", "-o/dev/null", "--wrap=sleep 1")
        wait_until(lambda: cluster.job(job)["JobState"] == "PENDING", _PATIENCE_S)  # it would go on later
        cluster.run("scancel", job)
    else:
        cluster.run("scontrol", "update", f"JobId={job}", "EndTime=now+1")
    wait_until(lambda: not cluster.jobs(), _PATIENCE_S)
    known, last = json.loads((run / "metadata.json").read_text()), rows(run)[-1]["step"]
    whole = whole_steps(Cell(backend, "step"), run)
    found = [] if known["status"] == "interrupted" or way == "preemption" else [f"status {known['status']}: {known}"]
    if max(whole, default=0) < last or saved_steps(str(run)) != whole:
        logs = (run / "logs/rank_0.log").read_text()[-3000:]
        found.append(f"steps until {last}, whole checkpoints {whole}, told of {saved_steps(str(run))}: {logs}")
    return found


def main(argv: list[str]) -> int:
    """Run the cells that the words name: `BACKEND [MOMENT [WAY [RANKS [GRACE]]]]`."""
    backend, *rest = argv
    chosen: list[Cell] = cells(backend)
    if rest:
        kinds: tuple[Callable[[str], Any], ...] = (str, str, int, float)
        chosen = [Cell(backend, *(kind(word) for kind, word in zip(kinds, rest, strict=False)))]
    folder = Path(tempfile.mkdtemp(prefix=f"end-cells-{backend}-"))
    project, wrong = project_of(backend, folder), 0
    for cell in chosen:
        found = judge(cell, project)
        wrong += bool(found)
        print(cell.name, "ok" if not found else "\n  ".join(("WRONG", *found)), flush=True)
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
