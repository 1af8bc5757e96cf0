"""The search for the fastest kernel of each shape by `hipblaslt-bench`: each GPU has a thread and an output file."""

from __future__ import annotations

import math
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from primus_bench.benchmarks.gemm import hipblaslt
from primus_bench.tuning import results
from primus_bench.tuning.calls import CHOICE, Call
from primus_bench.tuning.record import Finished
from primus_core.errors import MachineError, PrimusError

__all__ = ["Search", "default_words", "search_words"]

_ITERATIONS = ("-i", "20", "-j", "20", "--rotating", "512", "--print_kernel_info")
_DEFAULT = ("--algo_method", "heuristic", "--requested_solution", "1")
_SEARCH = ("--requested_solution", "-1", "--skip_slow_solution_ratio", "0.7")
_REPLACED = frozenset({
    CHOICE, "--algo_method", "-i", "--iters", "-j", "--cold_iters", "--rotating", "--print_kernel_info",
    "--requested_solution", "--skip_slow_solution_ratio", "--device",
})  # fmt: skip
"""Flags of the log that a search sets itself."""


class Search(NamedTuple):
    """How to search."""

    bench: str
    """The path of `hipblaslt-bench`."""
    method: str
    gpus: int
    directory: str
    """For what `hipblaslt-bench` writes."""
    timeout_s: float
    environ: Mapping[str, str]

    def run(self, calls: Sequence[Call]) -> Iterator[Finished]:
        """What becomes of each call, as it comes. An error of the machine ends the search."""
        waiting = queue.SimpleQueue[Call]()
        for call in calls:
            waiting.put(call)
        done = queue.SimpleQueue[Finished | Exception]()
        for gpu in range(self.gpus):
            # daemons: where this process is ended, no search goes on
            threading.Thread(target=self._work, args=(gpu, waiting, done.put), daemon=True).start()
        for _ in calls:
            found = done.get()
            if isinstance(found, Exception):
                raise found
            yield found

    def _work(self, gpu: int, waiting: queue.SimpleQueue[Call], put: Callable[[Finished | Exception], None]) -> None:
        with suppress(queue.Empty):
            while True:
                call = waiting.get_nowait()
                try:
                    put(self.one(call, gpu))
                except Exception as error:  # the main thread raises it
                    put(error)

    def one(self, call: Call, gpu: int) -> Finished:
        """Time the default kernel of a call, and find the fastest one, on one GPU.

        Raises:
            MachineError: `hipblaslt-bench` is gone.
        """
        found = Finished(call.text, self.method, gpu)
        if call.key is None:
            return found._replace(failed="the line of the log lacks a size or a type")
        found = found._replace(default_us=self._default_us(call, gpu))
        try:
            return found._replace(entry=self._fastest(call, gpu))
        except MachineError:
            raise
        except PrimusError as error:
            return found._replace(failed=f"{error.what}: {error.why}".replace("\n", "; "))

    def _default_us(self, call: Call, gpu: int) -> float | None:
        try:
            return hipblaslt.parse(self._call(default_words(call, gpu), self.environ)).us
        except MachineError:
            raise
        except PrimusError:  # the search may find a kernel nevertheless
            return None

    def _fastest(self, call: Call, gpu: int) -> results.Entry:
        """The entry that `hipblaslt-bench` writes, the fastest where there are several."""
        path = os.path.join(self.directory, f"gpu{gpu}.txt")
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._call(search_words(call, gpu, self.method), {**self.environ, "HIPBLASLT_TUNING_FILE": path})
        found = [entry for entry in results.read(path) if entry.key == call.key]
        if not found:
            raise PrimusError(f"{path} has only entries of other shapes")
        return min(found, key=lambda entry: entry.us or math.inf)

    def _call(self, words: Sequence[str], environ: Mapping[str, str]) -> str:
        return hipblaslt.call((self.bench, *words), environ, self.timeout_s)


def default_words(call: Call, gpu: int) -> tuple[str, ...]:
    """The arguments that time the kernel which hipBLASLt chooses by itself."""
    return (*_plain(call), *_ITERATIONS, "--device", str(gpu), *_DEFAULT)


def search_words(call: Call, gpu: int, method: str) -> tuple[str, ...]:
    """The arguments that try all kernels of a method, and write down the fastest."""
    return (*_plain(call), *_ITERATIONS, "--device", str(gpu), "--algo_method", method, *_SEARCH)


def _plain(call: Call) -> tuple[str, ...]:
    return call.without(_REPLACED).words
