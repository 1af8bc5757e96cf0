"""Logs of runs that are well, and symptoms: lines as the frameworks write them."""

from __future__ import annotations

import random
from pathlib import Path

from primus_diagnose.scan.source import Source

MEGATRON = (
    (
        " [2025-11-23 10:{m:02}:{s:02}] iteration {i:8}/   10000 | consumed samples: {n:12} | elapsed time per iteration (ms): "
        "{t:.1f} | learning rate: 1.000000E-04 | global batch size:    16 | lm loss: {x:.6E} | loss scale: 1.0 | "
        "grad norm: {g:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"
    ),
    "INFO:megatron.core.timers:(min, max) time across ranks (ms):",
    "    evaluate .......................................: (123.45, 130.01)",
    "validation loss at iteration {i} | lm loss value: {x:.6E} | lm loss PPL: 1.234567E+03 | ",
    "saving checkpoint at iteration {i:7} to output/checkpoints in torch_dist format",
)
TORCHTITAN = (
    (
        "[titan] 2025-11-23 10:{m:02}:{s:02},123 - root - INFO - step: {i:2}  loss: {x:8.5f}  grad_norm: {g:7.4f}  "
        "memory:  1.00GiB(0.50%)  tps: 7,{s:03}  tflops: 3.02  mfu: 0.97%"
    ),
    "[titan] 2025-11-23 10:{m:02}:{s:02},456 - root - INFO - Saving the checkpoint (or staging if async is enabled).",
    "[titan] 2025-11-23 10:{m:02}:{s:02},789 - root - WARNING - Dataset c4_test is being re-looped",
)
MAXTEXT = (
    (
        "I1123 10:{m:02}:{s:02}.123456 140123 metric_logger.py:196] completed step: {i}, seconds: {t:.3f}, TFLOP/s/device: "
        "312.100, Tokens/s/device: 7000.123, total_weights: 8192, loss: {x:.3f}, lm_loss: {x:.3f}, perplexity: 1234.5"
    ),
    "I1123 10:{m:02}:{s:02}.223456 140123 checkpoint_manager.py:1983] [process=0] Saving checkpoint at step {i}",
    "Per train step:\n Total TFLOPs: 12.34 ",
)
NCCL = (
    "node1:3468:3905 [4] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
    (
        "node1:3468:3905 [4] NCCL INFO NET/Plugin : dlerror=librccl-net.so: cannot open shared object file: No such file or "
        "directory No plugin found (librccl-net.so), using internal implementation"
    ),
)
LINES = {"megatron": MEGATRON + NCCL, "torchtitan": TORCHTITAN + NCCL, "maxtext": MAXTEXT}
SYMPTOMS = [
    (
        "[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=4661, NumelOut=4661, Timeout(ms)=600000) ran for 600060 milliseconds "
        "before timing out."
    ),
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. ",
    "NCCL WARN NET/IB : Got completion from peer 10.1.2.3<38420> with status=5 opcode=0 len=0 vendor err 249 (Recv)",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:31044",
    (
        "[W] recvValue failed on SocketImpl(fd=69, addr=[h]:4711, remote=[m]:29500): Failed to recv, got 0 bytes. Connection was "
        "likely closed. Did the remote server shutdown or crash?"
    ),
    "slurmstepd: error: *** STEP 3495064.0 ON orion-01-01 CANCELLED AT 2021-10-27T19:35:36 ***",
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 3401 got signal: 15",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "DEADLINE_EXCEEDED: Barrier timed out. 1/4 tasks reached barrier",
]


def healthy(count: int, picked: random.Random, framework: str = "") -> list[str]:
    """So many lines of a run that is well."""
    lines = LINES[framework or picked.choice(sorted(LINES))]
    weights = [10, *[1] * (len(lines) - 1)]
    found: list[str] = []
    while len(found) < count:
        i = len(found)
        values = {"i": i, "n": 16 * i, "m": i // 60 % 60, "s": i % 60, "t": 1000 + i % 7, "x": 7 - i / 1e5, "g": 1.5}
        found += picked.choices(lines, weights)[0].format(**values).split("\n")
    return found[:count]


def write(folder: Path, *texts: str) -> list[Source]:
    """The logs of ranks 0, 1, ..., as sources."""
    found = []
    for rank, text in enumerate(texts):
        path = folder / f"rank_{rank}.log"
        path.write_text(f"{text.replace('{rank}', str(rank))}\n", encoding="utf-8")
        found.append(Source(str(path), path.name, rank))
    return found
