"""Measure writing and reading of checkpoints, many small files, and loading of training data.

The options of `bench io` and its plan. The worker parses its arguments with the same.
"""

from __future__ import annotations

import argparse
import os
from typing import NamedTuple

from primus_bench import options
from primus_bench.contract import SuiteMachine, SuitePart
from primus_bench.options import RankBenchmark
from primus_core.errors import RequestError
from primus_core.plan.plan import Requirement, RunPlace
from primus_core.plugins.contracts import TaskCall

__all__ = ["IO", "OPERATIONS", "Settings", "declare", "settle"]

OPERATIONS = ("write", "read", "metadata", "loader")
BATCH = 8
"""Sequences that a worker of the loader hands over at once."""
_FEWEST_BATCHES = 3
_EPILOG = """examples:
  primus direct -- bench io --dir checkpoints --size 1GiB
  GPUS_PER_NODE=8 primus direct -- bench io --size 4GiB
  primus direct -- bench io --op metadata --files 10000
  primus direct -- bench io --op loader --data /data/corpus_text_document --workers 4

Each rank writes a file of its own, as sharded checkpoints do. All files are deleted at the end."""


class Settings(NamedTuple):
    """What will be measured, every default filled in."""

    operations: tuple[str, ...]
    directory: str
    size: int
    """Bytes of each file."""
    block: int
    files: int
    """Empty files of each rank, for `metadata`."""
    repeat: int
    data: str
    """Prefix of `.bin` and `.idx`; empty: `loader` writes its own."""
    seq_len: int
    workers: int
    outputs: tuple[str, ...]
    json: bool

    def words(self) -> tuple[str, ...]:
        """The settings as arguments of the worker."""
        words = options.repeated("--op", self.operations)
        words += ["--dir", self.directory, "--size", str(self.size), "--block", str(self.block)]
        words += ["--files", str(self.files), "--repeat", str(self.repeat)]
        words += ["--data", self.data] * bool(self.data)
        words += ["--seq-len", str(self.seq_len), "--workers", str(self.workers)]
        return (*words, *options.output_words(self.outputs, json=self.json))


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `bench io`."""
    parser.add_argument("--op", dest="operations", action="append", choices=OPERATIONS, default=[],
                        help="measure only this operation (repeatable; default: all)")  # fmt: skip
    parser.add_argument("--dir", dest="directory", default="", metavar="DIR",
                        help="folder on the file system to measure (default: the run directory)")  # fmt: skip
    parser.add_argument("--size", type=options.byte_count, default=2**28, metavar="SIZE",
                        help="bytes of each rank's file, and most that its loader reads (default: 256MiB)")  # fmt: skip
    parser.add_argument("--block", type=options.byte_count, default=2**23, metavar="SIZE",
                        help="bytes of each call that writes or reads (default: 8MiB)")  # fmt: skip
    parser.add_argument("--files", type=_count, default=1000, metavar="N",
                        help="files of each rank for metadata (default: 1000)")  # fmt: skip
    parser.add_argument("--repeat", type=_count, default=5, metavar="N", help="measure N times (default: 5)")
    data = "load PREFIX.bin and PREFIX.idx, tokens in Megatron's format (default: a file of its own)"
    parser.add_argument("--data", default="", metavar="PREFIX", help=data)
    parser.add_argument("--seq-len", type=_count, default=4096, metavar="TOKENS",
                        help="tokens of a sample of the loader (default: 4096)")  # fmt: skip
    parser.add_argument("--workers", type=_workers, default=2, metavar="N",
                        help="processes of the loader on each rank; 0: the rank itself (default: 2)")  # fmt: skip
    options.add_outputs(parser)


def settle(args: argparse.Namespace) -> Settings:
    """The settings in `args`.

    Raises:
        RequestError: nothing would be written that could be read.
    """
    operations = tuple(dict.fromkeys(args.operations)) or OPERATIONS
    if "read" in operations and "write" not in operations:
        raise RequestError("--op read needs --op write", why="it reads what has been written", fix="add --op write")
    if args.data and "loader" not in operations:
        raise RequestError("--data is read by --op loader only", fix="add --op loader, or remove --data")
    least = _FEWEST_BATCHES * BATCH * args.seq_len * 2
    if "loader" in operations and args.size < least:
        why = f"the loader needs {_FEWEST_BATCHES} batches of {BATCH} samples of {args.seq_len} tokens: {least} bytes"
        raise RequestError(
            f"--size {args.size} is too small", why=why, fix="choose a larger --size or a smaller --seq-len"
        )
    return Settings(
        operations, args.directory, args.size, min(args.block, args.size), args.files, args.repeat, args.data,
        args.seq_len, args.workers, tuple(args.output), args.json,
    )  # fmt: skip


class Io(RankBenchmark[Settings]):
    """The benchmark `io`."""

    name, epilog = "io", _EPILOG

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options."""
        declare(parser)

    def settle(self, args: argparse.Namespace, call: TaskCall, place: RunPlace) -> Settings:
        """See `settle`."""
        folder = os.path.normpath(os.path.join(call.facts.cwd, args.directory)) if args.directory else place.directory
        data = os.path.normpath(os.path.join(call.facts.cwd, args.data)) if args.data else ""
        return settle(args)._replace(directory=folder, data=data)

    def suite(self, machine: SuiteMachine, *, quick: bool) -> SuitePart:
        """In the run directory; as often as a comparison needs it."""
        size, files = ("32MiB", "200") if quick else ("256MiB", "1000")
        return SuitePart(("--size", size, "--files", files))

    def requires(self, settings: Settings, call: TaskCall) -> tuple[Requirement, ...]:
        """A folder to write in and data to read, where they are named."""
        files = [f"{settings.data}.{suffix}" for suffix in ("bin", "idx")] * bool(settings.data)
        return (
            *(Requirement("folder", settings.directory, "choose another --dir"),) * bool(call.args.directory),
            *(Requirement("file", name, "--data names a file without its suffix .bin") for name in files),
        )

    def reads(self, call: TaskCall) -> tuple[str, ...]:
        """The data."""
        return tuple(f"{call.args.data}.{suffix}" for suffix in ("bin", "idx")) if call.args.data else ()


IO = Io()


def _workers(text: str) -> int:
    return options.whole(text, 0, 1024)


def _count(text: str) -> int:
    return options.whole(text, 1, 10**6)
