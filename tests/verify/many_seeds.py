"""Clean verifications with many seeds: how often is a layout called different that is not? TorchTitan, small models.

    python -m tests.verify.many_seeds --seeds 200 --layouts tp=2 fsdp=2 --in-turn

Each seed has its own weights and tokens, its own reference on one rank, and its own trainings in the layouts. A process
that has imported TorchTitan forks the ranks, so that a training costs what it computes. The first training of each kind
starts as all others do, by `primus direct`; the rest take its resolved settings, with other paths and another seed.
With `--in-turn`, each seed trains one of the layouts: two hundred take 40 CPU minutes. `--first` goes on after others.
`--experts` is a model with experts, where rounding may choose between two that are nearly equal for a token.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from primus_core.variables import METRICS_FILE
from primus_machine.host import HostRoot
from primus_machine.variables import RUN_DIR
from primus_train.kit.replicas import WANTED
from primus_train.kit.worker import resolved
from primus_verify.kept import Kept
from primus_verify.layouts import Layout, parse
from primus_verify.resolving import as_experiment, find_verifier
from primus_verify.session import Session
from primus_verify.trials import Trials

DENSE, EXPERTS = {"family": "llama3", "flavor": "8B"}, {"family": "qwen3", "flavor": "30B-A3B"}
_LENGTH, FEWER_TOKENS = 128, {"global_batch_size": 4}
"""A quarter of those of `verify`, in two micro-batches: the tolerance goes by their number."""
STEPS = 3


class Ranks:
    """The process that forks ranks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def train(self, run: str, ranks: int) -> None:
        """Train what `config/backend_config.json` in `run` says."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"run": run, "ranks": ranks}) + "\n")
        self.process.stdin.flush()
        codes = self.process.stdout.readline()
        assert json.loads(codes) == [0] * ranks, f"{codes}\n{Path(run, 'log').read_text()[-3000:]}"


@contextmanager
def warm(run: str, environ: Mapping[str, str]) -> Iterator[Ranks]:
    """Yield the process that forks ranks, with what the trainer in `run` imports and patches."""
    command = [sys.executable, "-m", "tests.verify.many_seeds", "--fork", run]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environ))
    try:
        yield Ranks(process)
    finally:
        assert process.stdin
        process.stdin.close()
        process.wait()


@dataclass(frozen=True)
class Forked(Trials):
    """Trainings whose ranks are forked, once each kind has been trained from the start."""

    ranks: list[Ranks] = field(default_factory=list)
    known: dict[tuple[str, bool], tuple[str, str]] = field(default_factory=dict)
    """Run and start of the first training of a kind."""
    number: int = 0

    def train(self, layout: Layout, start: str, changed: Mapping[str, Any] | None = None) -> str:
        """Train with this seed, or with one of the verification's own."""
        seed = changed or self.verifier.seed(self.number)
        key = (layout.name, bool(start))
        if not self.ranks:
            run = super().train(layout, start, seed)
            if key in self.known:
                return run
            kept = f"{run}-kept"  # the comparison removes what it has read
            os.makedirs(f"{kept}/config")
            os.makedirs(f"{kept}/logs")
            text = Path(run, "config/backend_config.json").read_text()
            Path(kept, "config/backend_config.json").write_text(text.replace(run, kept))
            self.known[key] = (kept, start)
            return run
        first, its_start = self.known[key]
        run = tempfile.mkdtemp(prefix=f"{self.number}-{layout.name}-", dir=self.folder)
        os.makedirs(f"{run}/config")
        text = Path(first, "config/backend_config.json").read_text().replace(first, run)
        config = json.loads(text.replace(its_start, start) if start else text)
        config["settings"].update(seed)
        Path(run, "config/backend_config.json").write_text(json.dumps(config))
        self.ranks[0].train(run, layout.ranks)
        return run


def verify_seeds(
    numbers: Sequence[int],
    layouts: Sequence[str],
    folder: str,
    *,
    in_turn: bool = False,
    model: Mapping[str, str] = DENSE,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what came of each layout, seed by seed; `in_turn`: of one layout for each seed but the first."""
    verifier = find_verifier("torchtitan")
    chosen = [parse(text, verifier.rank_axes) for text in layouts]
    degrees = [one.degrees for one in chosen]
    small = verifier.experiment({"model": model}, shrink=True, layouts=degrees, device="cpu")
    small["training"] |= {**FEWER_TOKENS, "seq_len": _LENGTH * max(one.get("cp", 1) for one in degrees)}
    path = os.path.join(folder, "exp.yaml")
    Path(path).write_text(as_experiment("torchtitan", small, folder))
    environ = {**HostRoot().environ, "PRIMUS_CACHE": f"{folder}/cache"}
    first, *rest = numbers
    trials = Forked(verifier, folder, path, environ, STEPS, 1800, number=first)
    yield from _verified(trials, chosen)
    kept = trials.known["one rank", True][0]
    with warm(kept, {**environ, WANTED: "1", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}) as ranks:
        for number in rest:
            again = Forked(verifier, folder, path, environ, STEPS, 1800, ranks=[ranks], known=trials.known,
                           number=number)  # fmt: skip
            yield from _verified(again, [chosen[number % len(chosen)]] if in_turn else chosen)


def _verified(trials: Forked, layouts: Sequence[Layout]) -> Iterator[tuple[int, dict[str, Any]]]:
    kept = Kept(f"{trials.folder}/kept/{trials.number}", trials.environ)
    session = Session(trials, kept, None, lambda _: None, {})
    for result in session.verify(layouts):
        yield trials.number, result
    session.clean()


def fork_ranks(run: str) -> None:
    """Read from standard input which runs to train, with how many ranks, and fork these; print their exit codes."""
    os.environ |= {RUN_DIR: run, METRICS_FILE: f"{run}/metrics.jsonl"}
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from primus_torchtitan import worker

    worker._adapt(resolved())  # what a rank does before it trains
    for module in ("torchtitan.trainer", "primus_torchtitan.trainer_config"):
        importlib.import_module(module)
    for line in sys.stdin:
        asked = json.loads(line)
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = str(probe.getsockname()[1])
        children = [_fork(asked["run"], rank, asked["ranks"], port) for rank in range(asked["ranks"])]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        answers.write(json.dumps(codes) + "\n")
        answers.flush()


def _fork(run: str, rank: int, ranks: int, port: str) -> int:
    if child := os.fork():
        return child
    code = 1
    try:
        log = os.open(f"{run}/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        number, size = str(rank), str(ranks)
        os.environ |= {RUN_DIR: run, METRICS_FILE: f"{run}/metrics.jsonl", "RANK": number, "LOCAL_RANK": number,
                       "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "localhost",
                       "MASTER_PORT": port}  # fmt: skip
        from primus_torchtitan import worker

        worker._train(resolved())  # what is left to do after `_adapt`
        code = 0
    except BaseException:  # a child must never go on as its parent
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> int:
    """Verify with many seeds; 1 if a layout was called different."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--layouts", nargs="+", default=["tp=2", "fsdp=2"])
    parser.add_argument("--in-turn", action="store_true")
    parser.add_argument("--experts", action="store_true")
    parser.add_argument("--fork", default="")
    args = parser.parse_args()
    if args.fork:
        fork_ranks(args.fork)
        return 0
    seen, false = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        seeds = range(args.first, args.first + args.seeds)
        model = EXPERTS if args.experts else DENSE
        for number, result in verify_seeds(seeds, args.layouts, folder, in_turn=args.in_turn, model=model):
            seen += 1
            false += result["status"] != "equal"
            share = max((one["error"] / one["limit"] for one in result["worst"].values() if one["limit"]), default=0.0)
            words = [result["why"], *(one["text"] for one in result["findings"])]
            print(f"seed {number} {result['layout']}: {result['status']}, at most {share:.3f} of the limit",
                  *filter(None, words), flush=True)  # fmt: skip
    print(f"{seen} layouts of {args.seeds} seeds, {false} false alarms")
    return int(bool(false))


if __name__ == "__main__":
    sys.exit(main())
