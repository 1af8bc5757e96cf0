"""TorchTitan reads `.bin`/`.idx` in Megatron's order, and continues at the sample on any number of ranks."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.indexed_files import write_indexed

from primus_core.errors import PrimusError
from primus_data.training.samples import Samples

pytest.importorskip("torchtitan", reason="torchtitan is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.full]

LENGTH = 16


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A blend, as a plan describes it; documents have many lengths."""
    folder, draw = tmp_path_factory.mktemp("corpora"), random.Random(3)
    documents = [[draw.randrange(500) for _ in range(draw.choice([0, 1, 16, 17, 200]))] for _ in range(80)]
    web, books = (write_indexed(folder / name, part) for name, part in (("web", documents), ("books", documents[:30])))
    return {"blend": [[0.7, web], [0.3, books]], "samples": 240, "seed": 7}


def loader(told: dict[str, Any], ranks: int, rank: int, batch: int, **settings: Any) -> Any:
    from primus_torchtitan.indexed_loader import IndexedLoader

    config = IndexedLoader.Config(told=told, **settings)
    return config.build(
        dp_world_size=ranks, dp_rank=rank, tokenizer=None, seq_len=LENGTH, local_batch_size=batch,
        snapshot_every_n_steps=1,
    )  # fmt: skip


def taken(loaders: list[Any], batches: int) -> list[list[int]]:
    """The samples that all ranks take together, in their order."""
    found = []
    running = [iter(one) for one in loaders]
    for _ in range(batches):
        for batch in running:
            inputs, labels = next(batch)
            assert inputs["positions"].tolist() == [list(range(LENGTH))] * len(labels)
            found += [[*row, int(after[-1])] for row, after in zip(inputs["input"].tolist(), labels, strict=True)]
    return found


@pytest.mark.parametrize(("ranks", "batch"), [(1, 8), (2, 4), (4, 1)])
def test_a_global_batch_has_the_same_samples_on_any_number_of_ranks(
    told: dict[str, Any], ranks: int, batch: int
) -> None:
    samples = Samples.of({**told, "length": LENGTH})
    found = taken([loader(told, ranks, rank, batch) for rank in range(ranks)], 32 // (ranks * batch))
    assert found == [samples[number].tolist() for number in range(32)]


def test_training_continues_at_the_sample_on_another_number_of_ranks(told: dict[str, Any]) -> None:
    samples = Samples.of({**told, "length": LENGTH})
    before = [loader(told, 2, rank, 4) for rank in range(2)]
    taken(before, 3)
    assert before[0].state_dict() == before[1].state_dict()
    after = [loader(told, 3, rank, 2) for rank in range(3)]
    for one in after:
        one.load_state_dict(before[0].state_dict())
    assert taken(after, 2) == [samples[number].tolist() for number in range(24, 36)]


def test_validation_reads_each_whole_batch_once_or_begins_again(told: dict[str, Any]) -> None:
    """As many on each rank: one that reads more would wait for the others for ever."""
    one = {**told, "blend": [[None, told["blend"][1][1]]], "samples": None}
    count = len(Samples.of({**one, "length": LENGTH}))
    assert [len(list(loader(one, 2, rank, 4, infinite=False))) for rank in range(2)] == [count // 8] * 2
    again = taken([loader(one, 1, 0, count)], 2)
    assert again[:count] == again[count:]


def test_tokens_that_the_model_does_not_have_end_the_training(told: dict[str, Any]) -> None:
    with pytest.raises(PrimusError, match=r"token id 49\d is outside the model's vocabulary of 490"):
        taken([loader(told, 1, 0, 100, vocab_size=490)], 1)


def test_data_that_have_no_sample_for_each_rank_are_refused(told: dict[str, Any]) -> None:
    with pytest.raises(PrimusError, match="and all ranks take 4000 at a time"):
        loader(told, 1000, 0, 4)
