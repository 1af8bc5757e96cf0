"""FP8 by Primus-Turbo takes the place of TorchTitan's multiplications. The kernels are AMD's; here torch multiplies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchtitan", reason="torchtitan is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.full]

STAND_IN = {
    "ops.py": """
import torch

calls = []

def gemm_fp8(a, b, trans_a=False, trans_b=False, out_dtype=None, config=None, fuse_bgrad_accum_pattern=None):
    calls.append(("gemm", tuple(a.shape), tuple(b.shape), config.granularity))
    a, b = (a.T if trans_a else a), (b.T if trans_b else b)
    return (a @ b).to(out_dtype)

def grouped_gemm_fp8(a, b, group_lens, group_offs=None, trans_b=True, out_dtype=None, config=None, num_cu=None,
                     fuse_bgrad_accum_pattern=None):
    calls.append(("grouped", tuple(a.shape), tuple(b.shape), config.granularity))
    parts, start = [], 0
    for weight, length in zip(b, group_lens.tolist()):
        parts.append(a[start:start + length] @ (weight.T if trans_b else weight))
        start += length
    return torch.cat(parts)
""",
    "core/low_precision.py": """
import enum
from dataclasses import dataclass

class Format(enum.Enum):
    E4M3 = enum.auto()

class ScalingGranularity(enum.Enum):
    TENSORWISE = enum.auto()

@dataclass
class Float8QuantConfig:
    format: Format = Format.E4M3
    granularity: ScalingGranularity = ScalingGranularity.TENSORWISE
""",
}
"""The signatures of Primus-Turbo 0.4."""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the stand-in was asked to multiply."""
    for name, text in STAND_IN.items():
        path = tmp_path / "primus_turbo" / "pytorch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    from primus_turbo.pytorch import ops  # type: ignore[import-not-found, import-untyped, unused-ignore]

    yield ops.calls
    for name in [name for name in sys.modules if name.startswith("primus_turbo")]:
        del sys.modules[name]


def test_linear_layers_multiply_in_fp8_but_gates_the_output_and_odd_sizes(calls: list[Any]) -> None:
    import torch
    from torchtitan.models.llama3 import model_registry

    from primus_torchtitan.turbo_fp8 import with_fp8

    spec = with_fp8(model_registry("debugmodel"), ("linear",))
    from torchtitan.models.common.linear import Linear

    kinds = {name: type(config)._owner for name, config, _, _ in spec.model.traverse(Linear.Config)}
    converted = {name for name, kind in kinds.items() if kind is not Linear}
    assert "lm_head" not in converted
    assert any("w1" in name for name in converted)
    name, config = next((n, c) for n, c, _, _ in spec.model.traverse(Linear.Config) if n in converted)
    layer = config.build()
    torch.nn.init.normal_(layer.weight)
    hidden = torch.randn(2, 3, config.in_features)
    assert torch.allclose(layer(hidden), hidden @ layer.weight.T, atol=1e-4), name
    [(kind, rows, weight, granularity)] = calls
    assert (kind, rows, weight) == ("gemm", (6, config.in_features), (config.out_features, config.in_features))
    assert granularity.name == "TENSORWISE"


def test_experts_multiply_in_fp8(calls: list[Any]) -> None:
    import torch
    from torchtitan.models.common.moe import GroupedExperts

    from primus_torchtitan.turbo_fp8 import _experts

    plain = GroupedExperts.Config(dim=16, hidden_dim=32, num_experts=3)
    experts = _experts(plain).build()
    for weight in experts.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    offsets = torch.tensor([2, 2, 7], dtype=torch.int32)
    rows = torch.randn(7, 16)
    found = experts._grouped_mm(A=rows, B_t=experts.w1_EFD.transpose(-2, -1), offs=offsets)
    expected = torch.cat([rows[:2] @ experts.w1_EFD[0].T, rows[2:] @ experts.w1_EFD[2].T])
    assert torch.allclose(found, expected, atol=1e-5)
    assert calls[0][:3] == ("grouped", (7, 16), (3, 32, 16))


def test_a_model_without_fp8_is_left_alone() -> None:
    from torchtitan.models.llama3 import model_registry

    from primus_torchtitan.turbo_fp8 import with_fp8

    spec = model_registry("debugmodel")
    assert with_fp8(spec, ()) is spec


def test_mock_data_are_the_same_tokens_on_any_number_of_ranks() -> None:
    from primus_torchtitan.mock_loader import MockLoader

    def taken(ranks: int, batch: int, batches: int) -> list[list[int]]:
        config, found = MockLoader.Config(vocab_size=50), []
        running = [
            iter(config.build(dp_world_size=ranks, dp_rank=rank, tokenizer=None, seq_len=8, local_batch_size=batch))
            for rank in range(ranks)
        ]
        for _ in range(batches):
            found += [[*row, int(after[-1])] for one in running for inputs, labels in [next(one)]
                      for row, after in zip(inputs["input"].tolist(), labels, strict=True)]  # fmt: skip
        return found

    whole = taken(1, 4, 3)
    assert taken(2, 2, 3) == whole
    assert all(0 <= token < 50 for row in whole for token in row)
    assert all(len(row) == 9 for row in whole)


def test_mock_data_go_on_where_a_run_was_saved() -> None:
    from primus_torchtitan.mock_loader import MockLoader

    def loader() -> Any:
        config = MockLoader.Config(vocab_size=50)
        return config.build(dp_world_size=1, dp_rank=0, tokenizer=None, seq_len=8, local_batch_size=2)

    first, second = loader(), loader()
    running = iter(first)
    next(running)
    second.load_state_dict(first.state_dict())
    assert next(iter(second))[1].tolist() == next(running)[1].tolist()
