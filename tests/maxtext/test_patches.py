"""Each patch is needed: without it, what MaxText does fails here. When one of these fails, remove the patch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from tests.maxtext.conftest import needs_maxtext

from primus_maxtext.patches import PATCHES
from primus_train.kit.replicas import WANTED

NEEDS = {
    "foreign-steps": """
import os, tempfile
import numpy as np
from maxtext.common import checkpointing
from orbax.checkpoint import v1 as ocp
folder = tempfile.mkdtemp()
def manager():
    return checkpointing.create_orbax_checkpoint_manager(folder, True, False, 1, max_num_checkpoints_to_keep=2)
first = manager()
first.save_checkpointables(1, {"items": {"a": np.ones(2)}})
first.close()
os.makedirs(folder + "/99998"), os.makedirs(folder + "/99999")
second = manager()
assert second.latest.step == 1, second.latest
second.save_checkpointables(2, {"items": {"a": np.ones(2)}})
second.close()
assert sorted(os.listdir(folder)) == ["1", "2", "99998", "99999"], os.listdir(folder)
""",
    "installed-assets": """
import os
from maxtext.configs import types
assert os.path.isdir(os.path.join(types.MAXTEXT_ASSETS_ROOT, "tokenizers"))
""",
    "late-preemption-looks": """
import threading
from types import SimpleNamespace
from jax._src import distributed
from maxtext.common import checkpointing
told = []
manager = SimpleNamespace(reached_sync_point=lambda step: told.append(step) or step == 42)
distributed.global_state.client, distributed.global_state.preemption_sync_manager = object(), manager
def look(step):
    return checkpointing.reached_preemption(None, step)
look(41)
save = threading.Thread(target=look, args=[36])
save.start()
save.join()
assert told == [41], told
assert look(42) and look(43)
""",
    "tied-logits-in-bfloat16": """
from types import SimpleNamespace
import jax.numpy as jnp
from maxtext.common.common_types import ShardMode
from maxtext.layers.nnx_decoders import attend_on_embedding
config = SimpleNamespace(shard_mode=ShardMode.AUTO, parameter_memory_host_offload=False)
logits = attend_on_embedding(jnp.ones((2, 4)), jnp.full((3, 4), 1 / 3), jnp.float32, config)
assert abs(logits - 4 / 3).max() < 1e-6, logits
""",
    "token-in-tensorboard": """
from types import SimpleNamespace
from maxtext.utils import maxtext_utils
told = []
writer = SimpleNamespace(add_text=lambda key, value: told.append(key))
config = SimpleNamespace(get_keys=lambda: {"hf_access_token": "x", "steps": 1})
maxtext_utils.add_config_to_summary_writer(config, writer)
assert told == ["steps"], told
""",
}


def run(program: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", WANTED: "1"}  # as a trial of `verify`
    return subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)


def test_every_patch_says_why_and_for_which_versions() -> None:
    assert {patch.id for patch in PATCHES} == set(NEEDS)
    assert all(patch.reason and patch.link.startswith("maxtext/") and patch.since < patch.before for patch in PATCHES)


@needs_maxtext
@pytest.mark.full
@pytest.mark.parametrize("patch", NEEDS)
def test_without_the_patch_it_fails_and_with_all_it_works(patch: str) -> None:
    without = run(NEEDS[patch])
    assert "AssertionError" in without.stderr, f"{patch} is no longer needed: remove it ({without.stderr[-300:]})"
    done = run(f"from primus_maxtext.patches import apply_all\napply_all()\n{NEEDS[patch]}")
    assert done.returncode == 0, done.stderr
