"""The worker of `bench io`, one for each rank: write, read and check files of its own.

It runs alone too: `python -m primus_bench.benchmarks.io.worker --dir /checkpoints --size 1GiB`
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from primus_bench.benchmarks.io import files, loader, options, report
from primus_bench.benchmarks.io.options import Settings
from primus_bench.benchmarks.io.report import Pass
from primus_bench.measure.progress import logged
from primus_bench.measure.ranks import Ranks, join
from primus_bench.options import parsed
from primus_bench.report.files import prepare
from primus_bench.report.outcome import publish
from primus_core.errors import MachineError
from primus_machine.host import HostRoot

__all__ = ["main"]

_FIX = "look for errors of the file system in the kernel's log of the node, and of the storage server"


def main(argv: Sequence[str], after_write: Callable[[str], object] = lambda path: None) -> int:
    """Measure what `argv` asks for; rank 0 prints and writes the result. `after_write` gets each written file."""
    settings = options.settle(parsed("io", options.declare, argv))
    settings = settings._replace(directory=settings.directory or os.getcwd())
    ranks = join(HostRoot().environ)
    first = ranks.place.rank == 0
    if first:
        prepare(settings.outputs)
    folder = _folder(settings, ranks)
    with (
        _cleaned(folder, ranks.place.rank),
        logged(here=first) as progress,
    ):
        _prepare(settings, ranks, folder)
        passes = _measured(settings, ranks, folder, progress, after_write)
    if first:
        found = report.document(settings, ranks.hosts, passes, files.file_system(settings.directory))
        publish(found, report.sheet(found), settings.outputs, json=settings.json)
    return 0


@contextmanager
def _cleaned(folder: str, rank: int) -> Iterator[None]:
    """Delete the files at the end; where this rank fails, those of the others, too: they are ended.

    Raises:
        MachineError: the storage refused to write or to read.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    whole = True
    try:
        yield
        whole = False
    except OSError as error:
        raise MachineError("the storage failed", why=str(error), fix="choose another --dir") from error
    finally:
        shutil.rmtree(folder if whole else f"{folder}/{rank}", ignore_errors=True)
        with suppress(OSError):  # not empty: the last one deletes it
            os.rmdir(folder)


def _folder(settings: Settings, ranks: Ranks) -> str:
    """A new folder, which rank 0 makes for all."""
    trouble, folder = "", ""
    if ranks.place.rank == 0:
        try:
            os.makedirs(settings.directory, exist_ok=True)
            folder = tempfile.mkdtemp(prefix=".primus-bench-io-", dir=settings.directory)
        except OSError as error:
            trouble = f"{settings.directory}: {error.strerror}"
    _refuse(ranks, trouble)
    return str(ranks.exchange(folder)[0])


def _prepare(settings: Settings, ranks: Ranks, folder: str) -> None:
    """Make this rank's own folder inside, and refuse what does not fit."""
    trouble, needed = "", settings.size * ranks.place.world
    try:
        os.mkdir(f"{folder}/{ranks.place.rank}", 0o700)
        free = os.statvfs(folder)
        left = free.f_bavail * free.f_frsize
        writes = "write" in settings.operations or ("loader" in settings.operations and not settings.data)
        if writes and left < needed * 1.05:
            trouble = f"{folder} has {left / 2**30:.1f} GiB left; {needed / 2**30:.1f} GiB are needed"
    except OSError as error:
        trouble = f"{folder}: {error.strerror}: all nodes must see the folder"
    _refuse(ranks, trouble)


def _refuse(ranks: Ranks, trouble: str) -> None:
    """End all ranks where one cannot go on."""
    if reason := next(filter(None, ranks.exchange(trouble)), ""):
        raise MachineError("cannot measure the storage", why=reason, fix="choose another --dir, or a smaller --size")


def _measured(settings: Settings, ranks: Ranks, folder: str, progress: Callable[[str], None],
              after_write: Callable[[str], object]) -> list[Pass]:  # fmt: skip
    """All that is asked for, on rank 0."""
    found: list[Pass] = []
    for turn in range(settings.repeat):
        for alone in (True, False) if ranks.place.world > 1 else (True,):
            progress(f"{'one rank' if alone else 'all ranks'}, {turn + 1} of {settings.repeat}")
            found += _transfers(settings, ranks, folder, alone, after_write)
        if "metadata" in settings.operations:
            found += _of_metadata(settings, ranks, folder)
    if "loader" in settings.operations:
        progress("the data loader")
        found += _of_loader(settings, ranks, folder, after_write)
    return found


def _transfers(settings: Settings, ranks: Ranks, folder: str, alone: bool,
               after_write: Callable[[str], object]) -> list[Pass]:  # fmt: skip
    """Write, then read what another node has written: a rank's own node could have it in memory."""
    if "write" not in settings.operations:
        return []
    place, count = ranks.place, 1 if alone else ranks.place.world
    here = place.rank < count
    source = (place.rank + place.local_world) % count if here else 0
    own, other = (f"{folder}/{rank}/data" for rank in (place.rank, source))
    ranks.exchange(None)
    written = files.write(own, settings.size, settings.block, place.rank) if here else files.Written(0.0, 0.0)
    if here:
        after_write(own)
    found = [Pass("write", count, ranks.collect(written.durable_s), ranks.collect(written.returned_s))]
    ranks.exchange(None)
    if "read" in settings.operations:
        if here:
            files.drop_cache(other)
        share = files.cached(other) if here else 0.0
        ranks.exchange(None)
        seconds = files.read(other, settings.size, settings.block) if here else 0.0
        found.append(Pass("read", count, ranks.collect(seconds), cached=ranks.collect(share)))
    ranks.require_right("write" if "read" not in settings.operations else "read",
                        files.wrong(other, settings.size, settings.block, source) if here else "", _FIX)  # fmt: skip
    if here:
        os.unlink(own)
    return found


def _of_metadata(settings: Settings, ranks: Ranks, folder: str) -> list[Pass]:
    ranks.exchange(None)
    trouble, seconds = "", dict.fromkeys(("create", "stat", "rename", "delete"), 0.0)
    try:
        seconds = files.metadata(f"{folder}/{ranks.place.rank}", settings.files)
    except ValueError as error:
        trouble = str(error)
    ranks.require_right("metadata", trouble, _FIX)
    return [Pass(name, ranks.place.world, ranks.collect(taken)) for name, taken in seconds.items()]


def _of_loader(settings: Settings, ranks: Ranks, folder: str, after_write: Callable[[str], object]) -> list[Pass]:
    """Load samples: of a file of this rank's own, or its share of the data that a person names."""
    place, prefix = ranks.place, settings.data
    if not prefix:
        prefix = f"{folder}/{place.rank}/tokens"
        loader.write(prefix, settings.size)
        after_write(f"{prefix}.bin")
    _refuse(ranks, loader.fault(prefix))
    share = (place.rank, place.world) if settings.data else (0, 1)
    samples = loader.Samples.of(prefix, settings.seq_len, settings.size, share)
    _refuse(ranks, "" if samples.batches > 1 else f"{prefix}.bin has too few tokens for two batches on each rank")
    trouble = loader.wrong(samples, settings.workers, is_own=not settings.data)
    ranks.require_right("loader", trouble, _FIX)
    found = []
    for _ in range(settings.repeat):
        ranks.exchange(None)
        files.drop_cache(f"{prefix}.bin")
        cached = files.cached(f"{prefix}.bin")
        ranks.exchange(None)
        loaded = loader.load(samples, settings.workers)
        shares, seconds = ranks.collect(cached), ranks.collect(loaded.seconds)
        found.append(Pass("loader", place.world, seconds, cached=shares, tokens=loaded.tokens))
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
