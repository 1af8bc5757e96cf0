"""All ranks end after the same step, whichever of them is told to end, and when."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from primus_train.kit.end_request import EndRequest, interrupt_as_terminate


class Store:
    """As torch's: `get` waits until a value is there."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, 120)
            return self.values[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Give the signals back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_rank_that_is_alone_ends_after_the_step_in_hand(number: int) -> None:
    request = EndRequest()
    request.listen()
    assert not request.is_due(1)
    os.kill(os.getpid(), number)
    assert request.is_due(2)


@pytest.mark.usefixtures("handlers")
def test_an_ignored_signal_is_no_request() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = EndRequest()
    request.listen()
    interrupt_as_terminate()
    os.kill(os.getpid(), signal.SIGINT)
    assert not request.is_due(1)


@pytest.mark.parametrize("told", [0, 2])
def test_ranks_end_after_the_same_step_although_one_is_ahead(told: int) -> None:
    """They meet in each step: none is more than a step ahead. Only one is told."""
    world, store, ended = 3, Store(), dict[int, int]()
    requests = [EndRequest(rank, world, store) for rank in range(world)]
    meeting = threading.Barrier(world)

    def train(rank: int) -> None:
        step = 0
        while True:
            step += 1
            meeting.wait(120)
            if step == 5 and rank == told:
                requests[rank]._told.set()  # what the signal does
            if requests[rank].is_due(step):
                ended[rank] = step
                return

    ranks = [threading.Thread(target=train, args=[rank]) for rank in range(world)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(120)
    assert len(ended) == world
    assert len(set(ended.values())) == 1
    assert min(ended.values()) >= 5
