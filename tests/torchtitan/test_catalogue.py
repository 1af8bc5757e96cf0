"""What TorchTitan builds for a preset is the model that the catalogue has under that name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import primus_torchtitan
from primus_core.config import files
from primus_core.metadata import version_of
from primus_core.models import catalogue
from primus_core.models.arithmetic import parameters
from primus_torchtitan.schema import load, shipped

PRESETS = {
    path.stem: files.read(str(path), {}).data
    for path in sorted((Path(primus_torchtitan.__file__).parent / "presets" / "models").glob("*.yaml"))
}
MODELS = catalogue.load()

# The bias that balances experts is a buffer there; checkpoints and the catalogue have it among the weights.
COUNT = """
import json, sys, torch
from primus_torchtitan.patches import apply_all
apply_all()
from primus_torchtitan.model_sizes import model_spec
counts = {}
for name, model in json.loads(sys.argv[1]).items():
    with torch.device("meta"):
        built = model_spec(model).model.build()
    biases = [b for key, b in built.named_buffers() if key.endswith("expert_bias_E")]
    counts[name] = (sum(p.numel() for p in set(built.parameters())), sum(b.numel() for b in biases))
print(json.dumps(counts))
"""
SIZES = {
    "dim": "hidden_size", "n_layers": "num_layers", "n_heads": "num_attention_heads", "n_kv_heads": "num_kv_heads",
    "vocab_size": "vocab_size", "ffn_hidden_dim": "ffn_hidden_size", "rope_theta": "rope_theta",
    "weight_tying": "tie_embeddings",
}  # fmt: skip
DEPARTURES = {("qwen3_235B_A22B", "rope_theta"): 5e6}
"""TorchTitan 0.3.0 has the value of the 2507 release."""


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.skipif(not version_of("torchtitan"), reason="torchtitan is not installed")
def test_torchtitan_builds_every_preset_with_the_catalogues_number_of_parameters() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT, json.dumps(PRESETS)], capture_output=True, text=True,
                          env={**os.environ, "TORCHDYNAMO_DISABLE": "1"}, check=True)  # fmt: skip
    counts = json.loads(done.stdout.splitlines()[-1])
    for name in PRESETS:
        facts = catalogue.find(name, MODELS).facts
        built, biases = counts[name]
        assert built + (biases if facts.moe and facts.moe.correction_bias else 0) == parameters(facts).total, name


@pytest.mark.parametrize("name", PRESETS)
def test_the_sizes_of_a_preset_are_the_catalogues_facts(name: str) -> None:
    schema = load(list(shipped().values())[-1])
    sizes: dict[str, Any] = dict(schema.families[PRESETS[name]["family"]][PRESETS[name]["flavor"]])
    facts = catalogue.find(name, MODELS).facts
    for theirs, ours in SIZES.items():
        wanted = DEPARTURES.get((name, theirs), getattr(facts, ours))
        assert sizes[theirs] in (wanted, None), theirs
