"""Tune the kernels of hipBLASLt for the shapes of a training.

The options of `bench gemm-tune` and its plan. The worker parses its arguments with the same.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence

from primus_bench import options
from primus_core.errors import Mistakes, RequestError
from primus_core.plan.plan import Requirement, Worker
from primus_core.plugins.contracts import TaskCall, TaskPlan

__all__ = ["EPILOG", "GEMM_TUNE", "METHODS", "WORKER", "declare", "declare_without_gpu", "tune_words"]

METHODS = ("heuristic", "all")
"""How `--algo_method` of `hipblaslt-bench` says which kernels are tried."""
WORKER = "primus_bench.tuning.worker"
EPILOG = """examples:
  primus direct -- bench gemm-tune tune logs --dir tuning
  primus bench gemm-tune dump logs --output shapes.jsonl
  primus bench gemm-tune apply tuning/tune_hipblas_gemm_results.txt
  primus bench gemm-tune verify tuning/tune_hipblas_gemm_results.txt logs-tuned

A log: HIPBLASLT_LOG_MASK=32 HIPBLASLT_LOG_FILE=logs/gemm_%i.txt in the environment of the training, for a few steps.
In a training, PRIMUS_HIPBLASLT_TUNING_STAGE does all this: docs/bench-gemm-tune.md."""
_INPUTS = "logs of hipBLASLt, folders of logs, or files of `dump`"


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `bench gemm-tune`."""
    actions = parser.add_subparsers(dest="verb", metavar="ACTION", required=True)
    _declare_files(actions)
    tune = actions.add_parser("tune", help="Find the fastest kernel for each shape of logs, on all GPUs.")
    tune.add_argument("logs", nargs="+", metavar="LOG", help=_INPUTS)
    tune.add_argument("--dir", dest="directory", required=True, metavar="DIR",
                      help="keep the results in DIR; run it again to resume")  # fmt: skip
    tune.add_argument("--method", choices=METHODS, default=METHODS[0],
                      help="kernels to try: those of the heuristic (default), or all of the library")  # fmt: skip
    tune.add_argument("--gpus", type=_count, metavar="N", help="use N GPUs (default: all of the node)")
    tune.add_argument("--timeout", type=options.seconds, default=3600.0, metavar="SECONDS",
                      help="stop the search for a shape after SECONDS (default: 3600)")  # fmt: skip
    options.add_outputs(tune)


def declare_without_gpu(parser: argparse.ArgumentParser) -> None:
    """The same for a command that needs no runtime: `tune` is missing."""
    _declare_files(parser.add_subparsers(dest="verb", metavar="ACTION", required=True))


def _declare_files(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    dump = actions.add_parser("dump", help="List the shapes of logs, with the number of calls.")
    dump.add_argument("logs", nargs="+", metavar="LOG", help=_INPUTS)
    dump.add_argument("--output", metavar="FILE", default="", help="write the shapes to FILE, one JSON object a line")
    apply = actions.add_parser("apply", help="Check a tuning file, and print the variable that applies it.")
    verify = actions.add_parser("verify", help="Find shapes that did not use their tuned kernel, by the log of a run.")
    report = actions.add_parser("report", help="Show the speed-up of each shape and of all calls.")
    for action in (apply, verify, report):
        action.add_argument("file", metavar="FILE", help="the tuning file")
    verify.add_argument(
        "logs", nargs="+", metavar="LOG", help="logs of a run with the tuning file in force, or folders"
    )
    for action in (apply, verify):
        action.add_argument("--json", action="store_true", help="print JSON")
    options.add_outputs(report)


def tune_words(logs: Sequence[str], directory: str, gpus: int, *more: str) -> tuple[str, ...]:
    """The arguments of a worker that tunes."""
    return ("tune", *logs, "--dir", directory, "--gpus", str(gpus), *more)


class GemmTune:
    """The benchmark `gemm-tune`."""

    epilog = EPILOG

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options."""
        declare(parser)

    def plan(self, call: TaskCall) -> TaskPlan:
        """One process, whatever the number of GPUs."""
        args, cwd = call.args, call.facts.cwd
        given = [*getattr(args, "logs", []), *filter(None, [getattr(args, "file", "")])]
        _require_files([os.path.join(cwd, call.file(path)) for path in given])
        place = call.place("", "bench-gemm-tune")
        worker = Worker(WORKER, tuple(_words(call, place.directory)), "single")
        if args.verb != "tune":
            return TaskPlan(place, worker, reads=tuple(given))
        from primus_bench.tuning import calls, stack  # nothing else starts the program

        known, found = stack.of_facts(call.facts), stack.find(call.facts.environ)
        needs = (Requirement("folder", os.path.join(cwd, args.directory), "choose another --dir"),)
        note = f"no AMD GPU was found here: if {calls.COMMAND} finds none either, the run fails with exit code 3"
        return TaskPlan(
            place,
            worker,
            requires=needs if found else (*needs, Requirement("command", calls.COMMAND, stack.INSTALL)),
            notes=() if known.architecture else (note,),
            reads=tuple(given),
        )


def _words(call: TaskCall, directory: str) -> Iterator[str]:
    """What was typed, with whole paths."""
    args, cwd = call.args, call.facts.cwd
    yield args.verb
    if hasattr(args, "file"):
        yield os.path.join(cwd, call.file(args.file))
    for log in getattr(args, "logs", ()):
        yield os.path.join(cwd, call.file(log))
    if args.verb == "dump":
        yield from ("--output", os.path.join(cwd, args.output or f"{directory}/gemm_shapes.jsonl"))
    elif args.verb == "tune":
        gpus = args.gpus or call.distributed.gpus_per_node
        yield from ("--dir", os.path.join(cwd, args.directory), "--gpus", str(gpus))
        yield from ("--method", args.method, "--timeout", repr(args.timeout))
    if args.verb in ("tune", "report"):
        yield from options.output_words(options.outputs(call, directory, "gemm-tune.json"), json=args.json)
    elif args.verb != "dump" and args.json:
        yield "--json"


def _require_files(paths: Sequence[str]) -> None:
    mistakes = Mistakes()
    for path in paths:
        if not os.path.exists(path):
            mistakes.add(RequestError(f"there is no file '{path}'", fix="name a file or a folder that exists"))
    mistakes.refuse()


def _count(text: str) -> int:
    return options.whole(text, 1, 1024)


GEMM_TUNE = GemmTune()
