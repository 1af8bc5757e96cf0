"""`bench attention`: FLOPs by counting, wrong results and gradients, and real processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run
from torch.nn.functional import scaled_dot_product_attention

from primus_bench.benchmarks.attention import model, worker
from primus_bench.benchmarks.attention.backends import Attend, Operands, attend_with, draw, mask, unavailable
from primus_bench.benchmarks.attention.check import wrong
from primus_bench.benchmarks.attention.problem import Problem
from primus_core.errors import MachineError, PrimusError
from primus_train.models import catalogue

pytestmark = pytest.mark.torch

TINY = Problem(2, 33, 4, 2, 16, "bf16", causal=True)


@given(st.integers(1, 40), st.booleans(), st.integers(0, 50))
def test_the_pairs_are_those_of_the_mask(seq: int, causal: bool, window: int) -> None:
    problem = Problem(1, seq, 1, 1, 8, "fp32", causal, window)
    allowed = mask(problem, "cpu")
    assert problem.pairs == (seq * seq if allowed is None else int(allowed.sum()))


def test_the_flops_are_those_by_hand() -> None:
    """Llama 3.1 8B: 32 heads of 128; QKᵀ and PV are 2·s²·128 each, half of it where causal (and the diagonal)."""
    whole = Problem(1, 4096, 32, 8, 128)
    assert whole.flops("forward") == 4 * 4096**2 * 128 * 32
    assert whole.flops("backward") == 2.5 * whole.flops("forward")
    assert whole._replace(causal=True).flops("forward") == 4 * (4096 * 4097 // 2) * 128 * 32
    assert whole._replace(causal=True, window=1).flops("forward") == 4 * 4096 * 128 * 32


@pytest.mark.parametrize("backend", ["math", "flash"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(
    "changed", [{}, {"causal": False}, {"window": 7}, {"causal": False, "window": 5}, {"kv_heads": 4}], ids=str
)
@pytest.mark.full
def test_what_torch_computes_is_right(backend: str, dtype: str, changed: dict[str, Any]) -> None:
    problem = TINY._replace(dtype=dtype, **changed)
    assert wrong(attend_with(backend, problem, "cpu"), draw(problem, "cpu", 0), problem) == ""


def other_scale(o: Operands) -> torch.Tensor:
    """Scores a fifth too large."""
    return scaled_dot_product_attention(*o.inputs, is_causal=True, enable_gqa=True, scale=1.2 / 4)


def all_keys(o: Operands) -> torch.Tensor:
    """No mask."""
    return scaled_dot_product_attention(*o.inputs, enable_gqa=True)


def shifted(o: Operands) -> torch.Tensor:
    """A mask that lets each query see the next key, too."""
    allowed = torch.ones(33, 33, dtype=torch.bool).tril(1)
    return scaled_dot_product_attention(*o.inputs, attn_mask=allowed, enable_gqa=True)


def other_groups(o: Operands) -> torch.Tensor:
    """Heads 0, 2 share keys, and 1, 3, instead of 0, 1 and 2, 3."""
    k, v = (x.repeat(1, 2, 1, 1) for x in (o.k, o.v))
    return scaled_dot_product_attention(o.q, k, v, is_causal=True)


def no_gradient(o: Operands) -> torch.Tensor:
    """The values' gradient is halved; the output is right."""
    half = o.v.detach() / 2 + o.v / 2
    return scaled_dot_product_attention(o.q, o.k, half, is_causal=True, enable_gqa=True)


def not_a_number(o: Operands) -> torch.Tensor:
    """One element."""
    spoiled = torch.zeros(o.q.shape, dtype=o.q.dtype)
    spoiled[0, 0, 3, 3] = float("nan")
    return scaled_dot_product_attention(*o.inputs, is_causal=True, enable_gqa=True) + spoiled


@pytest.mark.parametrize(
    ("attend", "what"),
    [(other_scale, "output"), (all_keys, "output"), (shifted, "output"), (other_groups, "output"),
     (no_gradient, "dV"), (not_a_number, "output")],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_wrong_result_or_gradient_is_found(attend: Attend, what: str, dtype: str) -> None:
    problem = TINY._replace(dtype=dtype)
    assert f"{what} is " in wrong(attend, draw(problem, "cpu", 0), problem)


def test_a_wrong_backend_is_exit_1_and_no_speed_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    build: Callable[[str, Problem, str], Attend] = lambda *_: all_keys  # noqa: E731
    words = ("--seq", "33", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--causal", "--device", "cpu")
    with pytest.raises(PrimusError, match="wrong result on rank 0") as caught:
        worker.main(words, build)
    assert caught.value.exit_code == 1
    assert capsys.readouterr().out == ""


def test_a_backend_that_is_not_here_is_exit_3_if_it_is_the_only_one() -> None:
    with pytest.raises(MachineError, match="cudnn is skipped"):
        worker.main(("--backend", "cudnn", "--seq", "16", "--device", "cpu"))


def test_a_skipped_backend_has_torch_s_reason_and_torch_warns_nobody(recwarn: pytest.WarningsRecorder) -> None:
    problem = TINY._replace(head_dim=48, v_head_dim=32)
    said = unavailable(attend_with("flash", problem, "cpu"), draw(problem, "cpu", 0))
    assert said == "Flash attention requires q,k,v to have the same last dimension"
    assert not [one for one in recwarn if "attention" in str(one.message)]


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2])
def test_both_passes_of_each_backend_are_measured(primus: Run, tmp_path: Path, ranks: int) -> None:
    words = ("--seq", "64", "--heads", "4", "--kv-heads", "2", "--head-dim", "32", "--causal", "--device", "cpu")
    done = primus("direct", "--", "bench", "attention", *words, "--duration", "0.1", "--output", "r.md", "--output",
                  "r.csv", env={"GPUS_PER_NODE": str(ranks)}, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "output/bench-attention/attention.json").read_text())
    names = [f"{backend}/{direction}" for backend in ("math", "flash") for direction in ("forward", "backward")]
    assert [case["name"] for case in found["cases"]] == names
    for case in found["cases"]:
        products = 2 if case["parameters"]["pass"] == "forward" else 5
        assert case["value"] == pytest.approx(products * 2 * 4 * 32 * (64 * 65 // 2) / case["median"] / 1e12)
        assert len(case["derived"]["tflops_of_ranks"]) == ranks
    assert "cudnn is skipped" in str(found["notes"])


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.full
def test_values_of_another_length_than_keys_are_right(dtype: str) -> None:
    problem = TINY._replace(dtype=dtype, kv_heads=4, v_head_dim=8)
    assert wrong(attend_with("math", problem, "cpu"), draw(problem, "cpu", 0), problem) == ""


def test_the_attention_of_deepseek_has_longer_keys_than_values_and_that_of_llama_shares_its_keys() -> None:
    """Forward: QKᵀ along 192, PV along 128; backward: three products along keys, two along values."""
    found = {name: catalogue.find(name, catalogue.load(())).facts for name in ("deepseek_v3", "llama3.1_8B")}
    mla = model.layer(found["deepseek_v3"], Problem(1, 4096, 1, 1, 1))
    assert (mla.heads, mla.kv_heads, mla.head_dim, mla.values, mla.causal) == (128, 128, 192, 128, True)
    assert mla.flops("forward") == 2 * (192 + 128) * 128 * (4096 * 4097 // 2)
    assert mla.flops("backward") == 2 * (3 * 192 + 2 * 128) * 128 * (4096 * 4097 // 2)
    llama = model.layer(found["llama3.1_8B"], Problem(1, 4096, 1, 1, 1))
    assert (llama.heads, llama.kv_heads, llama.head_dim, llama.values) == (32, 8, 128, 128)


@pytest.mark.full
def test_a_package_gets_tokens_before_heads_and_the_window_as_keys_to_the_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with the interface of flash-attn, which needs a GPU, on top of torch."""
    asked: list[tuple[bool, tuple[int, int]]] = []

    def flash_attn_func(q: Any, k: Any, v: Any, causal: bool, window_size: tuple[int, int] = (-1, -1)) -> torch.Tensor:
        asked.append((causal, window_size))
        problem = TINY._replace(causal=causal, window=window_size[0] + 1)
        operands = Operands(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), q)
        return attend_with("math", problem, "cpu")(operands).transpose(1, 2)

    monkeypatch.setitem(sys.modules, "aiter", SimpleNamespace(flash_attn_func=flash_attn_func))
    for causal, window, keys in ((True, 7, (6, 0)), (False, 5, (4, 4)), (True, 0, (-1, -1))):
        problem = TINY._replace(causal=causal, window=window)
        assert wrong(attend_with("aiter", problem, "cpu"), draw(problem, "cpu", 0), problem) == ""
        assert asked[-1] == (causal, keys)


def test_a_package_that_is_not_here_is_exit_3_with_how_to_install_it(primus: Run, tmp_path: Path) -> None:
    done = primus("direct", "--", "bench", "attention", "--backend", "aiter", cwd=tmp_path)
    assert (done.returncode, "https://github.com/ROCm/aiter" in done.stderr) == (3, True)
    assert not (tmp_path / "output").exists()


@pytest.mark.full
def test_a_model_defines_the_heads(primus: Run, tmp_path: Path) -> None:
    words = ("direct", "--dry-run", "--", "bench", "attention", "--model")
    assert primus(*words, "deepseek_v3", cwd=tmp_path).returncode == 0
    mixed = primus(*words, "deepseek_v3", "--heads", "8", cwd=tmp_path)
    assert (mixed.returncode, "remove --heads, or remove --model" in mixed.stderr) == (2, True)
    misspelt = primus(*words, "deepsek_v3", cwd=tmp_path)
    assert (misspelt.returncode, "did you mean 'deepseek_v3'?" in misspelt.stderr) == (2, True)


def test_heads_that_cannot_be_shared_are_refused(primus: Run, tmp_path: Path) -> None:
    done = primus("direct", "--dry-run", "--", "bench", "attention", "--heads", "8", "--kv-heads", "3", cwd=tmp_path)
    assert done.returncode == 2
    assert "choose a divisor of 8" in done.stderr
