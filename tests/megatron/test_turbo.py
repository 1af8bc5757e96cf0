"""Primus-Turbo's attention takes the place of Megatron's. The kernels are AMD's; here torch computes what they do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.megatron.conftest import MODEL, Train, losses, tiny

pytest.importorskip("megatron.training", reason="megatron-core is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.full]

STAND_IN = """
import torch

def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, deterministic=False):
    print("attention of", tuple(q.shape), "over", tuple(k.shape))
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=causal, scale=softmax_scale, enable_gqa=True
    )
    return out.transpose(1, 2)
"""
"""The signature of `primus_turbo.pytorch.ops.flash_attn_func`: (batch, sequence, heads, width)."""


@pytest.mark.parametrize("latent", [False, True], ids=["grouped heads", "latent attention"])
def test_a_model_with_it_loses_as_much_as_without(train: Train, tmp_path: Path, latent: bool) -> None:
    package = tmp_path / "packages/primus_turbo/pytorch"
    package.mkdir(parents=True)
    (package / "ops.py").write_text(STAND_IN)
    sizes = {"q_lora_rank": 32, "kv_lora_rank": 16, "qk_head_dim": 16, "qk_pos_emb_head_dim": 8, "v_head_dim": 24}
    wide = {"group_query_attention": False, "multi_latent_attention": True, **sizes}
    settings = {"model": {**MODEL, **(wide if latent else {})}, "train_iters": 3}
    with_it = {"enable_primus_turbo": True, "use_turbo_attention": True}
    plain, _ = train(tiny(**settings), run="plain")
    turbo, log = train(tiny(**settings, **with_it), run="turbo", packages=str(tmp_path / "packages"))
    assert ("attention of (2, 32, 4, 24) over (2, 32, 4, 24)" if latent else "over (2, 32, 2, 16)") in log
    assert losses(turbo) == pytest.approx(losses(plain), rel=1e-5)
