"""Samples come in Megatron's own order, token by token, from one prefix, a split of it, and blends."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12")

from tests.indexed_files import write_indexed
from tests.megatron.conftest import Python

from primus_data.training.order import of_rank
from primus_data.training.samples import Samples
from primus_megatron.installation import importable_version

pytestmark = [
    pytest.mark.torch,
    pytest.mark.full,
    pytest.mark.skipif(not importable_version(), reason="megatron-core is not installed"),
]

LENGTH = 16
CASES: dict[str, dict[str, Any]] = {
    "one epoch": {"blend": [[None, "web"]], "samples": None},
    "part of an epoch": {"blend": [[None, "web"]], "samples": 40},
    "a last epoch that is mixed with those before": {"blend": [[None, "web"]], "samples": 1240},
    "a last epoch by itself": {"blend": [[None, "web"]], "samples": 1400, "seed": 7},
    "the first part of a split": {"blend": [[None, "web"]], "samples": 900, "split": [90, 9, 1]},
    "the second part of a split": {"blend": [[None, "web"]], "samples": 99, "split": [90, 9, 1], "part": 1},
    "a blend": {"blend": [[0.7, "web"], [0.2, "books"], [0.1, "code"]], "samples": 2000},
    "a blend of one": {"blend": [[3.0, "web"]], "samples": 700},
    "a blend without weights": {"blend": [[None, "web"], [None, "books"]], "samples": 500},
    "all of a blend without weights": {"blend": [[None, "web"], [None, "books"]], "samples": None},
}
ORACLE = """
import hashlib, json, sys, types
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.utils import get_blend_from_list

found = {}
for name, case in json.load(open(sys.argv[1])).items():
    words = [word for weight, prefix in case["blend"] for word in ([] if weight is None else [str(weight)]) + [prefix]]
    blend, part = get_blend_from_list(words), case.get("part", 0)
    # As `train_data_path` (a blend for each part), or as `data_path` with `split`.
    where = {"blend_per_split": [blend, None, None]}
    if "split" in case:
        where = {"blend": blend, "split": ",".join(map(str, case["split"]))}
    tokenizer = types.SimpleNamespace(eod=511, pad=-1, vocab_size=512, unique_identifiers={})
    config = GPTDatasetConfig(random_seed=case.get("seed", 1234), sequence_length=case["length"], tokenizer=tokenizer,
        reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False, create_attention_mask=False,
        path_to_cache=sys.argv[2], **where)
    sizes = [0, 0, 0]
    sizes[part] = case["samples"]
    if "split" in case:
        sizes = [case["samples"]] * 3
    data = BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()[part]
    whole = [[*data[i]["tokens"].tolist(), int(data[i]["labels"][-1])] for i in range(len(data))]
    found[name] = [hashlib.sha256(json.dumps(tokens).encode()).hexdigest() for tokens in whole]
json.dump(found, open(sys.argv[3], "w"))
"""
SAMPLER = """
import json, sys
from megatron.training.datasets.data_samplers import MegatronPretrainingSampler

found = []
for rank in range(3):
    batches = iter(MegatronPretrainingSampler(total_samples=1000, consumed_samples=24, micro_batch_size=4,
        data_parallel_rank=rank, data_parallel_size=3))
    found.append([next(batches) for _ in range(5)])
json.dump(found, open(sys.argv[1], "w"))
"""


def corpus(prefix: Path, documents: int, seed: int) -> str:
    """Documents of many lengths; some are empty."""
    draw = random.Random(seed)
    lengths = [draw.choice([0, 1, 2, 5, 15, 16, 17, 40, 300]) for _ in range(documents)]
    return write_indexed(prefix, [[draw.randrange(510) for _ in range(length)] for length in lengths])


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """With files that are there."""
    folder = tmp_path_factory.mktemp("corpora")
    places = {
        name: corpus(folder / name, count, count) for name, count in {"web": 240, "books": 60, "code": 30}.items()
    }
    return {
        name: {**case, "length": LENGTH, "blend": [[weight, places[prefix]] for weight, prefix in case["blend"]]}
        for name, case in CASES.items()
    }


@pytest.fixture(scope="module")
def megatrons(cases: dict[str, Any], python: Python, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The digests of Megatron's samples, by case."""
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "cases.json").write_text(json.dumps(cases))
    ended = python(ORACLE, str(folder / "cases.json"), str(folder / "cache"), str(folder / "found.json"))
    assert ended.code == 0, ended.err[-3000:]
    found: dict[str, list[str]] = json.loads((folder / "found.json").read_text())
    return found


@pytest.mark.parametrize("name", CASES)
def test_samples_are_those_of_megatron_in_its_order(
    cases: dict[str, Any], megatrons: dict[str, list[str]], name: str
) -> None:
    samples = Samples.of(cases[name])
    ours = [hashlib.sha256(json.dumps(samples[number].tolist()).encode()).hexdigest() for number in range(len(samples))]
    assert ours == megatrons[name]
    assert len(set(ours)) > 30


def test_ranks_take_the_samples_that_megatrons_sampler_gives_them(python: Python, tmp_path: Path) -> None:
    ended = python(SAMPLER, str(tmp_path / "found.json"))
    assert ended.code == 0, ended.err[-3000:]
    theirs = json.loads((tmp_path / "found.json").read_text())
    ours = [[list(of_rank(24 + 12 * step, 4, 3, rank)) for step in range(5)] for rank in range(3)]
    assert ours == theirs
