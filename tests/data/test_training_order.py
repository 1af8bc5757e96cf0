"""The order of samples holds each token once an epoch, and is read on any number of ranks alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.indexed_files import write_indexed

from primus_core.errors import MachineError
from primus_data.training.batches import Batches
from primus_data.training.order import Asked, Blend, Order, cut
from primus_data.training.samples import Samples


@given(
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=30).filter(lambda found: sum(found) > 5),
    seed=st.integers(0, 1000),
)
@pytest.mark.full
def test_the_samples_of_an_epoch_have_each_token_once_and_one_that_follows(lengths: list[int], seed: int) -> None:
    order = Order(np.array(lengths, np.int32), range(len(lengths)), Asked(4, seed=seed))
    seen = []
    for number in range(len(order)):
        pieces = list(order.pieces(number))
        tokens = [(piece.document, piece.start + i) for piece in pieces for i in range(piece.length)]
        assert len(tokens) == 5
        assert all(place < lengths[document] for document, place in tokens)
        seen += tokens[:-1]
    assert len(set(seen)) == len(seen) == (sum(lengths) - 1) // 4 * 4


@given(
    weights=st.lists(st.floats(0.01, 1), min_size=2, max_size=5),
    size=st.integers(50, 200),
)
@pytest.mark.full
def test_no_part_of_a_blend_falls_behind_its_weight(weights: list[float], size: int) -> None:
    orders = [Order(np.array([5000], np.int32), range(1), Asked(4)) for _ in weights]
    blend = Blend(orders, weights, size)
    for number, weight in enumerate(weights):
        assert abs(int((blend.parts == number).sum()) - len(blend) * weight / sum(weights)) <= len(weights)


def test_a_split_divides_the_documents_as_megatron_does() -> None:
    assert cut(1000, (98, 2)) == [range(980), range(980, 1000)]
    assert cut(7, (1, 1, 1)) == [range(2), range(2, 5), range(5, 7)]


def test_what_is_read_once_has_no_weights(tmp_path: Path) -> None:
    """An evaluation is not told how many samples it draws: it reads what there is."""
    one, other = (write_indexed(tmp_path / name, [range(41)] * 2) for name in ("one", "other"))
    told = {"length": 4, "blend": [[0.7, one], [0.3, other]]}
    assert len(Samples.of(told)) == len(Samples.of({**told, "blend": [[None, one], [None, other]]}))
    assert len(Samples.of({**told, "samples": 5})) >= 5


def test_data_that_are_too_short_for_a_sample_or_for_the_steps_are_refused(tmp_path: Path) -> None:
    prefix = write_indexed(tmp_path / "one", [[1] * 10])
    with pytest.raises(MachineError) as caught:
        Samples([(None, prefix)], Asked(10, 5))
    assert "1 documents with 10 tokens, fewer than a sample of 10" in caught.value.why
    both = [(None, prefix), (None, write_indexed(tmp_path / "two", [[2] * 10]))]
    with pytest.raises(MachineError, match="the data have 6 samples, and the training draws 7"):
        Samples(both, Asked(3, 7))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_any_number_of_ranks_continues_at_the_sample(tmp_path: Path, ranks: int) -> None:
    samples = Samples([(None, write_indexed(tmp_path / "one", [range(400)]))], Asked(4))
    batches = [Batches(samples, 8 // ranks, ranks, rank, again=False) for rank in range(ranks)]
    next(batches[0])
    for one in batches:
        one.consumed = 16  # what was read ahead is not these
    rows = [row.tolist() for one in batches for row in next(one)]
    assert rows == [samples[number].tolist() for number in range(16, 24)]
    for one in batches:
        one.close()


def test_an_order_stays_what_it_is() -> None:
    """Recorded where it was compared with Megatron (`tests/megatron/test_sample_order.py`): another would end resuming."""
    order = Order(np.arange(1, 41, dtype=np.int32), range(40), Asked(16, 120, 7))
    assert (len(order), order.samples[:8].tolist()) == (153, [61, 46, 97, 22, 78, 3, 77, 60])
    assert order.documents[:8].tolist() == [22, 36, 20, 17, 1, 12, 27, 15]
    assert [tuple(piece) for piece in order.pieces(0)] == [(32, 32, 1), (10, 0, 11), (6, 0, 5)]
    blend = Blend([order, order], [0.7, 0.3], 12)
    assert blend.parts.tolist() == [0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0]
    assert blend.numbers.tolist() == [0, 0, 1, 2, 1, 3, 4, 2, 5, 6, 7, 3, 8]
