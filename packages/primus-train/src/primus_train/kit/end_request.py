"""Ends a training when it is told to end: after the same step on all ranks, so that they can save it.

A signal reaches each rank at another moment. As with JAX's notice of a preemption, each rank then says how many steps
it has ended, and all end after the step that follows the highest of these numbers. A step costs no communication.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Protocol

from primus_core import get_logger
from primus_train.kit import worker

__all__ = ["TERMINATED", "EndRequest", "ToldToEnd", "interrupt_as_terminate"]

TERMINATED = 128 + signal.SIGTERM
"""The exit code of a training that was told to end."""
_KEY = "primus/end"
_LOOK_S, _LOOKS_PER_S = 0.5, 2000
"""All ranks together look so often for the word of another one."""


class ToldToEnd(Exception):  # noqa: N818  # it is no error
    """Training ends after this step, as it was told to."""


class Store(Protocol):
    """What the ranks share: a store of `torch.distributed`."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...


def interrupt_as_terminate() -> None:
    """Let Ctrl-C do what SIGTERM does: a framework saves at SIGTERM only. A SIGINT that is ignored stays ignored."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os.kill(os.getpid(), signal.SIGTERM))


class EndRequest:
    """That of one rank. Call `is_due` after each step, on all ranks."""

    def __init__(self, rank: int = 0, world: int = 1, store: Store | None = None) -> None:
        self._rank, self._world, self._store = rank, world, store
        self._told, self._lock = threading.Event(), threading.Lock()
        self._ended, self._end_at = 0, sys.maxsize
        self._is_over = False
        if store and world > 1:
            threading.Thread(target=self._listen, daemon=True, name="primus-end").start()

    @classmethod
    def of_torch(cls) -> EndRequest:
        """Return that of a rank whose processes have met, and listen for SIGTERM and SIGINT from now on."""
        distributed = sys.modules["torch.distributed"]
        store = distributed.distributed_c10d._get_default_store()  # noqa: SLF001  # torch has no other way to it
        request = cls(worker.rank(), worker.world_size(), store)  # torch may only pretend to have more ranks
        request.listen()
        return request

    def listen(self) -> None:
        """Take SIGTERM and SIGINT for a request, unless they are ignored."""
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda *_: self._told.set())

    def close(self) -> None:
        """Listen to the other ranks no more: training has ended."""
        self._is_over = True

    def is_due(self, step: int) -> bool:
        """Return whether training ends after this `step`. May wait a moment for the other ranks' word."""
        if self._world == 1:
            return self._told.is_set()
        with self._lock:
            self._ended = step
            return step >= self._end_at

    def _listen(self) -> None:
        assert self._store
        pause_s = max(_LOOK_S, self._world / _LOOKS_PER_S)
        try:
            while not self._told.wait(pause_s):
                if self._is_over:
                    return
                if self._store.check([_KEY]):
                    break
            with self._lock:  # a step that ends meanwhile waits for the answer
                self._end_at = self._agree(self._store)
        except Exception as error:  # of torch's store, when another rank is gone
            if self._told.is_set() and not self._is_over:
                message = f"received a signal to stop, but the ranks cannot agree on a step: {error}"
                get_logger().warning("told_to_end_alone", message=message)

    def _agree(self, store: Store) -> int:
        """Return the step that all ranks end after."""
        store.set(_KEY, "1")
        store.set(f"{_KEY}/{self._rank}", str(self._ended))
        if not self._rank:  # `get` waits until it is there
            found = [int(store.get(f"{_KEY}/{rank}")) for rank in range(self._world)]
            store.set(f"{_KEY}/at", str(max(found) + 1))
        return int(store.get(f"{_KEY}/at"))
