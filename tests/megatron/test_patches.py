"""Each patch is needed: without it, what Megatron does fails here. When one of these fails, remove the patch."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.megatron.conftest import Python, Train, losses, saved, tiny

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12")
pytest.importorskip("megatron.core", reason="megatron-core is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.full]

NEEDS = {
    "cpu-device": "import torch; torch.cuda.current_device(); torch.cuda.Event().record()",
    "cpu-tensors": "import torch; torch.tensor([1.0], device='cuda')",
    "cpu-collectives": """
import tempfile, torch.distributed as dist
dist.init_process_group(backend="nccl", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
dist.barrier(device_ids=[0])
""",
    "cpu-optimizer-step": """
import torch
from primus_megatron.patches import cpu_device
cpu_device.PATCH.apply()
weight = torch.nn.Parameter(torch.ones(2))
weight.grad = torch.ones(2)
torch.optim.Adam([weight]).step()
""",
    "wheel-without-makefile": "from megatron.core.datasets.utils import compile_helpers; compile_helpers()",
    "local-latent-attention": """
import inspect
from megatron.core.transformer.dot_product_attention import DotProductAttention
inspect.signature(DotProductAttention.__init__).bind(None, None, 1, None, "self", k_channels=8, v_channels=8)
""",
    "latent-attention-whole-queries": """
from types import SimpleNamespace
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.mla_qk_norm_config import QKNormConfigResolver
spec = get_gpt_layer_local_spec(multi_latent_attention=True, qk_layernorm=True, normalization="RMSNorm")
rest = {"experimental_attention_variant": None, "qk_l2_norm": False, "qk_layernorm": True}
config = SimpleNamespace(q_lora_rank=None, transformer_impl="local", normalization="RMSNorm", **rest)
QKNormConfigResolver(config, spec.submodules.self_attention.submodules).resolve()
""",
    "local-expert-biases": """
import torch
from types import SimpleNamespace
from megatron.core.tensor_parallel import layers
weight = torch.ones(2, requires_grad=True)
output = layers.reduce_from_tensor_model_parallel_region(weight * 2, group=SimpleNamespace(size=lambda: 1))
output += 1
output.sum().backward()
assert weight.grad.tolist() == [2, 2]
""",
    "chosen-optimizer-state": """
import pathlib, tempfile
from types import SimpleNamespace
from megatron.training import checkpointing, global_vars
folder = tempfile.mkdtemp()
pathlib.Path(folder, "latest_checkpointed_iteration.txt").write_text("6")
global_vars._GLOBAL_ARGS = SimpleNamespace(load=folder, ckpt_step=4)
assert checkpointing.read_metadata(checkpointing.get_checkpoint_tracker_filename(folder)) == (4, False)
""",
    "changed-hyperparameters": """
from types import SimpleNamespace
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.training import global_vars
global_vars._GLOBAL_ARGS = SimpleNamespace(global_batch_size=8)
optimizer = SimpleNamespace(param_groups=[{"max_lr": 1e-4, "min_lr": 0.0, "betas": (0.9, 0.9), "lr": 0.0}])
schedule = (0.0, 1e-4, 0.0, 0, 80, "constant", 0.1, 0.1, 80, "constant")
scheduler = OptimizerParamScheduler(optimizer, *schedule, False, True)
optimizer.param_groups[0].update(max_lr=3e-3, betas=(0.9, 0.999))
scheduler.load_state_dict({**scheduler.state_dict(), "num_steps": 8})
assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["betas"]) == (1e-4, (0.9, 0.9))
""",
    "non-persistent-retention": """
import pathlib, tempfile
from types import SimpleNamespace
from megatron.training import checkpointing, global_vars
global_vars._GLOBAL_ARGS = SimpleNamespace(curr_iteration=8, load="", ckpt_step=None)
folder = pathlib.Path(tempfile.mkdtemp())
for name in ("iter_0000002", "iter_0000004", "iter_0000006", "iter_9999999"):
    (folder / name).mkdir()
for name in ("iter_0000002", "iter_0000004"):
    (folder / name / ".metadata").write_text("x")
checkpointing.cleanup_old_non_persistent_checkpoint(folder)
assert sorted(path.name for path in folder.iterdir()) == ["iter_0000004", "iter_0000006", "iter_9999999"]
""",
    "local-sequence-parallel": """
from types import SimpleNamespace
from megatron.core.transformer.torch_norm import WrappedTorchNorm
rest = dict.fromkeys(("layernorm_zero_centered_gamma", "persist_layer_norm", "memory_efficient_layer_norm"), False)
WrappedTorchNorm(SimpleNamespace(sequence_parallel=True, normalization="RMSNorm", **rest), 8)
""",
    "local-hybrid-layers": """
from types import SimpleNamespace
from megatron.core.models.hybrid import hybrid_block
rest = ("layernorm_zero_centered_gamma", "persist_layer_norm", "memory_efficient_layer_norm", "sequence_parallel")
config = SimpleNamespace(normalization="RMSNorm", **dict.fromkeys(rest, False))
hybrid_block.TENorm(config=config, hidden_size=8, eps=1e-5)
""",
    "cpu-gated-delta-net": """
import torch
from megatron.core.ssm.gated_delta_net import common, gdn
gdn.causal_conv1d(x=torch.ones(1, 4, 2), weight=torch.ones(2, 4), activation="silu")
common.l2norm(torch.ones(1, 4))
""",
}

RESUMED = "resumed-distributed-optimizer"


@pytest.fixture(scope="module")
def needed(python: Python) -> set[str]:
    program = "from primus_megatron.patches import apply_all; print(*(patch.id for patch in apply_all()))"
    return set(python(program).out.split())


def test_every_patch_says_why_and_for_which_versions() -> None:
    from primus_megatron.patches import PATCHES

    assert {patch.id for patch in PATCHES} == {*NEEDS, RESUMED}
    assert all(patch.reason and patch.link.startswith("https://") and patch.since < patch.before for patch in PATCHES)


@pytest.mark.parametrize("patch", NEEDS)
def test_without_the_patch_it_fails(patch: str, needed: set[str], python: Python) -> None:
    if patch not in needed:
        pytest.skip(f"{patch} does not apply to this machine and these versions")
    assert python(NEEDS[patch]).code != 0, f"{patch} is no longer needed: remove it"


def test_with_all_patches_what_failed_works(needed: set[str], python: Python) -> None:
    programs = [NEEDS[name] for name in NEEDS if name in needed - {"cpu-optimizer-step"}]
    done = python("\n".join(["from primus_megatron.patches import apply_all; apply_all()", *programs]))
    assert done.code == 0, done.err


def test_without_its_patch_a_resumed_distributed_optimizer_fails_or_goes_another_way(
    train: Train, tmp_path: Path, needed: set[str]
) -> None:
    if RESUMED not in needed:
        pytest.skip("the optimizer is not torch's own here")
    text = tiny(train_iters=4, save_interval=2, use_distributed_optimizer=True)
    whole, _ = train(text, run="whole")
    (tmp_path / "whole/checkpoints/iter_0000004/.metadata").unlink()

    def resumed(without: str) -> list[float]:
        try:
            return losses(train(text, run=f"without {without}", previous=saved(tmp_path / "whole"), without=without)[0])
        except AssertionError:  # it failed
            return []

    assert resumed("nothing") == losses(whole)[2:]
    assert resumed(RESUMED) != losses(whole)[2:], "it is no longer needed: remove it"
