"""MaxText reads `.bin`/`.idx` in Megatron's order, and its checkpoints keep one position for all processes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from tests.indexed_files import write_indexed
from tests.maxtext.conftest import needs_maxtext, tiny
from tests.planning import Resolve

from primus_data.training.samples import Samples

READS = """
import json, sys
import jax
import numpy as np
from jax.sharding import Mesh
from grain.experimental import ElasticIterator
from primus_maxtext import indexed_input
from primus_maxtext.worker import words

told = json.load(open(sys.argv[1]))
from maxtext.common import grain_utility
from maxtext.configs import pyconfig
from maxtext.input_pipeline.input_pipeline_interface import create_data_iterator
from maxtext.utils import maxtext_utils

config = pyconfig.initialize(words(told["settings"]))
mesh = Mesh(maxtext_utils.create_device_mesh(config), config.mesh_axes)
indexed_input.install(told["samples"])
train, evaluation = create_data_iterator(config, mesh)


def rows(batch):
    inputs, targets = (np.asarray(batch[name]) for name in ("inputs", "targets"))
    assert np.asarray(batch["inputs_segmentation"]).min() == np.asarray(batch["targets_segmentation"]).min() == 1
    return [[*row, after[-1]] for row, after in zip(inputs.tolist(), targets.tolist())]


found = {"train": [rows(next(train)) for _ in range(3)]}
state = json.loads(json.dumps(train.local_iterator.get_state()))
found["shared"] = isinstance(grain_utility.for_save(1, train, -1)._item, ElasticIterator)
train.local_iterator.set_state({"consumed": 4})
found["again"] = rows(next(train))
evaluation.reset()
found["evaluation"] = [rows(next(evaluation)) for _ in range(2)]
evaluation.reset()
found["once more"] = rows(next(evaluation))
json.dump({**found, "state": state}, open(sys.argv[2], "w"))
"""


@pytest.mark.full
@needs_maxtext
def test_batches_are_the_samples_in_their_order(resolve: Resolve, tmp_path: Path) -> None:
    """In a process of its own: to import MaxText changes the environment."""
    draw = random.Random(5)
    documents = [[draw.randrange(510) for _ in range(draw.choice([0, 1, 63, 64, 65, 500]))] for _ in range(60)]
    for name, part in (("web", documents), ("books", documents[:30]), ("held", documents[20:50])):
        write_indexed(tmp_path / name, part)
    data = {"train_data_path": [0.7, "web", 0.3, "books"], "valid_data_path": ["held"]}
    plan = resolve(tiny(data=data, dataset_type=None, eval_interval=2, eval_steps=2, data_shuffle_seed=7))
    told = {"settings": plan.config["settings"], "samples": plan.config["samples"]}
    (tmp_path / "told.json").write_text(json.dumps(told))
    words = [sys.executable, "-c", READS, str(tmp_path / "told.json"), str(tmp_path / "found.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=200, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((tmp_path / "found.json").read_text())

    asked = {"length": 64, "seed": 7}
    samples = Samples.of({**plan.config["samples"]["train"], **asked, "samples": 16})
    assert [row for batch in found["train"] for row in batch] == [samples[number].tolist() for number in range(12)]
    held = Samples.of({**plan.config["samples"]["validation"], **asked})
    assert [row for batch in found["evaluation"] for row in batch] == [held[number].tolist() for number in range(8)]
    assert found["once more"] == found["evaluation"][0], "an evaluation begins with the first sample"
    assert (found["state"], found["shared"]) == ({"consumed": 12}, True)
    assert found["again"] == found["train"][1]
