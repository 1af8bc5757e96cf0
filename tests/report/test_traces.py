"""Traces of torch's and JAX's profilers: what devices did, counted by hand, and files that are no traces."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run
from tests.report.runs import lines, make
from tests.report.test_command import HOSTILE, shown

from primus_report.figures import traced
from primus_report.traces import kinds
from primus_report.traces.intervals import length, own_parts, shared, union

GEMM = "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<...>>(...)"


def event(name: str, begin: float, end: float, *, cat: str = "kernel", pid: Any = 0, tid: Any = 7) -> dict[str, Any]:
    """One event, in milliseconds."""
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": begin * 1000,
        "dur": (end - begin) * 1000,
    }


def of_torch(folder: Path, rank: int, events: Sequence[dict[str, Any]], step: int = 13) -> Path:
    """A file as torch's profiler writes it."""
    data = {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "traceEvents": list(events),
    }
    path = folder / f"traces/iteration_{step}/rank{rank}_trace.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    return path


STEP = [
    event("ProfilerStep#10", 0, 100, cat="user_annotation", pid=99, tid=1),
    event(GEMM, 0, 30),
    event("void flash_fwd_kernel<Flash_fwd_kernel_traits<128>>(Flash_fwd_params)", 30, 40),
    event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20, 60, tid=20),
    event("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 60, 65, tid=20),
    event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 62, 80, cat="user_annotation", pid=99, tid=1),
    event("Memcpy HtoD (Pageable -> Device)", 80, 82, cat="gpu_memcpy"),
    event("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)", 90, 100),
    event("aten::mm", 0, 1, cat="cpu_op", pid=99, tid=1),
]
"""100 ms: compute 0-40, 80-82, 90-100 (52); communication 20-65 (45), not hidden 40-65 (25); idle 65-80, 82-90 (23), of
which 65-80 waits for data (15)."""


def test_the_parts_of_a_step_are_as_counted_by_hand(tmp_path: Path) -> None:
    of_torch(tmp_path, 3, STEP)
    [one] = traced.read(str(tmp_path)).ranks
    assert (one.name, one.file, one.on_gpu) == ("rank 3", "traces/iteration_13/rank3_trace.json.gz", True)
    parts = (one.span_s, one.compute_s, one.communication_s, one.exposed_s, one.data_s, one.idle_s)
    assert parts == pytest.approx((0.1, 0.052, 0.045, 0.025, 0.015, 0.023))
    assert one.compute_s + one.exposed_s + one.idle_s == pytest.approx(one.span_s)
    assert one.kinds == pytest.approx(
        {"communication": 0.045, "gemm": 0.03, "attention": 0.01, "elementwise and fused": 0.01, "copy": 0.002}
    )
    assert [(op.name, op.calls) for op in one.operations[:2]] == [("nccl AllReduce", 1), ("cutlass::device_kernel", 1)]


@pytest.mark.full
def test_a_report_has_the_shares_of_all_ranks_and_how_they_differ(primus: Run, tmp_path: Path) -> None:
    run = make(tmp_path / "output", lines(1, 40, 20), metadata={"ended": 1795272570.5 + 60})
    for rank, longer in enumerate((0, 0, 0, 12)):
        of_torch(run, rank, [*STEP, event(GEMM, 100, 100 + longer)])
    [found] = json.loads(primus("report", "latest", "--json").stdout)["runs"]
    figures = {name: one["value"] for name, one in found["figures"].items()}
    assert figures["trace_exposed"] == pytest.approx((3 * 25 / 100 + 25 / 112) / 4)
    assert figures["rank_skew"] == pytest.approx(64 / 55 - 1)
    assert [one["figure"] for one in found["findings"]][:1] == ["start"]
    assert {"trace_communication", "trace_data", "trace_skew"} <= {one["figure"] for one in found["findings"]}
    primus("report", "latest", "-o", "r.html")
    page = shown(tmp_path / "r.html")
    assert "nccl AllReduce" in page
    assert "difference between ranks</span><b>16.4%" in page


def test_jax_names_streams_of_devices(tmp_path: Path) -> None:
    names = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}}]
    threads = {1: "Stream #13(Compute)", 2: "Stream #22(MemcpyD2D)", 3: "XLA Ops"}
    names += [{"ph": "M", "pid": 1, "tid": t, "name": "thread_name", "args": {"name": n}} for t, n in threads.items()]
    work = [event("gemm_fusion_dot_5", 0, 10, pid=1, tid=1), event("loop_fusion_3", 10, 20, pid=1, tid=1),
            event("ncclDevKernel_AllGather_RING_LL", 15, 30, pid=1, tid=2), event("all of it", 0, 30, pid=1, tid=3)]  # fmt: skip
    for row in work:
        del row["cat"]
    folder = tmp_path / "tensorboard/plugins/profile/2026_11_23_11_15_56"
    folder.mkdir(parents=True)
    data = {"displayTimeUnit": "ns", "metadata": {}, "traceEvents": [*names, *work, {}]}
    (folder / "gpu-17.trace.json.gz").write_bytes(gzip.compress(json.dumps(data).encode()))
    (tmp_path / "traces").symlink_to("tensorboard/plugins/profile")
    [one] = traced.read(str(tmp_path)).ranks
    assert (one.name, one.on_gpu) == ("gpu-17", True)
    assert (one.compute_s, one.exposed_s, one.kinds["gemm"]) == pytest.approx((0.02, 0.01, 0.01))


def test_without_a_gpu_the_innermost_operations_of_the_cpu_count(tmp_path: Path) -> None:
    outer = [event("aten::linear", 0, 10, cat="cpu_op"), event("aten::mm", 2, 9, cat="cpu_op"),
             event("gloo:all_reduce", 8, 20, cat="user_annotation", tid=2)]  # fmt: skip
    of_torch(tmp_path, 0, outer)
    [one] = traced.read(str(tmp_path)).ranks
    assert not one.on_gpu
    assert one.kinds == pytest.approx({"gemm": 0.007, "elementwise and fused": 0.003, "communication": 0.012})
    assert one.exposed_s == pytest.approx(0.01)
    assert "trace_idle" not in traced.parts(traced.read(str(tmp_path)), 0.9)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no json",
        b"\x1f\x8bcut",
        gzip.compress(b'{"traceEvents": [{"ph": "X"', mtime=0)[:-9],
        b'{"traceEvents": 7}',
        b"[" * 100_000,
        b'{"traceEvents": [' + b"[" * 2_000_000,
        json.dumps(
            {"traceEvents": [1, None, {"ph": "X", "name": 5}, {"ph": "X", "name": "x", "ts": "a"}, {"ph": "M"}]}
        ).encode(),
        b'{"traceEvents": [{"ph": "X", "name": "x", "cat": "kernel", "ts": 1e999, "dur": -1}]}',
    ],
)
def test_what_is_no_trace_is_no_figure(tmp_path: Path, content: bytes) -> None:
    path = of_torch(tmp_path, 0, [])
    path.write_bytes(content)
    found = traced.read(str(tmp_path))
    assert found.ranks == ()
    assert found.notes
    assert (
        traced.figures(found)["trace_exposed"].why
        == "no trace was recorded; of a training, `train ... --profile STEPS` records one"
    )


@pytest.mark.full
def test_what_came_before_a_cut_counts_and_names_are_text(primus: Run, tmp_path: Path) -> None:
    run = make(tmp_path / "output", lines(1, 40, 20))
    path = of_torch(run, 0, [event(HOSTILE, 0, 10), *STEP])
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text[:-20]))
    done = primus("report", "latest", "-o", "r.html", "-o", "r.md")
    assert done.returncode == 0, done.stderr
    page = shown(tmp_path / "r.html")
    assert "was not read whole" in page
    assert "<img" not in page


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Cijk_Ailk_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64", "gemm"),
        ("nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_NTN", "gemm"),
        ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "gemm"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "gemm"),
        ("dot.5", "gemm"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("c10d::allreduce_", "communication"),
        ("all-gather-start.3", "communication"),
        ("void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<...>>", "attention"),
        ("_attn_fwd", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>", "optimizer"),
        ("triton_poi_fused_add_mul_silu_2", "elementwise and fused"),
        ("Memcpy DtoD (Device -> Device)", "copy"),
        ("something else", "other"),
    ],
)
def test_operations_have_a_kind(name: str, kind: str) -> None:
    assert kinds.kind(name) == kind


_INTERVALS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda one: (float(one[0]), float(sum(one)))), max_size=12
)


def _moments(intervals: Sequence[tuple[float, float]]) -> set[int]:
    return {moment for begin, end in intervals for moment in range(int(begin), int(end))}


@given(_INTERVALS, _INTERVALS)
@pytest.mark.full
def test_unions_and_what_they_share_are_those_of_single_moments(
    some: list[tuple[float, float]], others: list[tuple[float, float]]
) -> None:
    assert length(union(some)) == len(_moments(some))
    assert shared(union(some), union(others)) == len(_moments(some) & _moments(others))


@given(_INTERVALS)
@pytest.mark.full
def test_what_events_of_a_thread_do_themselves_is_all_and_nothing_twice(some: list[tuple[float, float]]) -> None:
    parts = [(begin, end) for begin, end, _ in own_parts((begin, end, 0) for begin, end in some)]
    assert sum(end - begin for begin, end in parts) == length(union(parts))
    assert _moments(parts) <= _moments(some)
    nested = union(some)
    assert length(union(parts)) <= length(nested)
