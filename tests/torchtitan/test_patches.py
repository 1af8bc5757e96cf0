"""Each patch is needed: without it, what TorchTitan does fails here. When one of these fails, remove the patch."""

from __future__ import annotations

import pytest
from tests.torchtitan.conftest import Program

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.full]

ONE_RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
NEEDS = {
    "cpu-device": "import torchtitan.tools.utils as u; u.device_module.set_device(u.get_local_device())",
    "cpu-attention": """
import torch
from torch.nn.attention.flex_attention import flex_attention
q, k, v = (torch.randn(1, 1, 16, 16, requires_grad=True) for _ in range(3))
flex_attention(q, k, v).sum().backward()
""",
    "cpu-reduction": """
import tempfile, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
dist.all_reduce(torch.ones(2), op=dist._make_nccl_premul_sum(0.5))
""",
    "torch213-set-timeout": "import torch.distributed as dist; dist.set_timeout",
    "torch213-pipeline-step": """
import inspect
from torch.distributed.pipelining.schedules import PipelineScheduleSingle
assert "arg_mbs" in inspect.signature(PipelineScheduleSingle.step).parameters
""",
    "torch213-pipeline-buffers": """
import tempfile, torch, torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
class Counts(torch.nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.register_buffer("count", torch.zeros(()))
    def forward(self, x):
        self.count.add_(1)
        return super().forward(x)
dist.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
stage = PipelineStage(Counts(), 0, 1, torch.device("cpu"))
for step in (1, 2):
    ScheduleGPipe(stage, 2, lambda x, y: (x - y).sum()).step(torch.ones(2, 2), target=torch.ones(2, 2))
    assert stage.submod.count == 2 * step, stage.submod.count
""",
    "wait-keeps-gradient": """
import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
on_its_way = AsyncCollectiveTensor(torch.ones(2)).requires_grad_()
(on_its_way.wait() * torch.tensor([2.0, 3.0])).sum().backward()
assert on_its_way.grad.tolist() == [2.0, 3.0]
""",
    "loss-not-finite": """
import inspect
from torchtitan.trainer import Trainer
assert "Loss is not finite" not in inspect.getsource(Trainer.train_step)
""",
}


def needed(program: Program) -> set[str]:
    code = "from primus_torchtitan.patches import apply_all; print(*(patch.id for patch in apply_all()))"
    return set(program(code, **ONE_RANK).out.split())


def test_every_patch_says_why_and_for_which_versions() -> None:
    from primus_torchtitan.patches import PATCHES

    assert {patch.id for patch in PATCHES} == set(NEEDS)
    assert all(patch.reason and patch.link.startswith("https://") and patch.since < patch.before for patch in PATCHES)


@pytest.mark.parametrize("patch", NEEDS)
def test_without_the_patch_it_fails(program: Program, patch: str) -> None:
    if patch not in needed(program):
        pytest.skip(f"{patch} does not apply to this machine and these versions")
    assert program(NEEDS[patch], **ONE_RANK).code != 0, f"{patch} is no longer needed: remove it"


@pytest.mark.parametrize("patch", ["torch213-pipeline-buffers", "wait-keeps-gradient"])
def test_with_the_patches_the_numbers_are_right(program: Program, patch: str) -> None:
    ended = program(f"from primus_torchtitan.patches import apply_all; apply_all()\n{NEEDS[patch]}", **ONE_RANK)
    assert ended.code == 0, ended.err


def test_patches_that_come_too_late_are_noticed(program: Program) -> None:
    if "cpu-device" not in needed(program):
        pytest.skip("this machine has an accelerator")
    ended = program(
        "import sys, types; sys.modules['torchtitan.trainer'] = types.ModuleType('late')\n"
        "from primus_torchtitan.patches import apply_all; apply_all()",
        **ONE_RANK,
    )
    assert "imported already" in ended.err


def test_attention_without_flex_is_the_same_sum(program: Program) -> None:
    """Against flex_attention itself, forward, with documents in a block-causal mask."""
    ended = program(
        """
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention
from primus_torchtitan.patches.cpu_attention import sdpa_in_place_of_flex
torch.manual_seed(0)
q = torch.randn(2, 4, 32, 16); k, v = torch.randn(2, 2, 32, 16), torch.randn(2, 2, 32, 16)
document = torch.arange(32) // 10
mask = create_block_mask(lambda b, h, i, j: (i >= j) & (document[i] == document[j]), 2, None, 32, 32, device="cpu")
mine, _ = sdpa_in_place_of_flex(q, k, v, score_mod=None, block_mask=mask, scale=None, enable_gqa=True,
                                return_aux=AuxRequest(lse=False), kernel_options={})
torch.testing.assert_close(mine, flex_attention(q, k, v, block_mask=mask, enable_gqa=True))
mine, sums = sdpa_in_place_of_flex(q, k, v, score_mod=None, block_mask=mask, scale=None, enable_gqa=True,
                                   return_aux=AuxRequest(lse=True), kernel_options={})
theirs, aux = flex_attention(q, k, v, block_mask=mask, enable_gqa=True, return_aux=AuxRequest(lse=True))
torch.testing.assert_close((mine, sums.lse), (theirs, aux.lse))
""",
        **ONE_RANK,
    )
    assert ended.code == 0, ended.err
