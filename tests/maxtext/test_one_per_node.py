"""What JAX makes of the variables that the launcher `one-per-node` sets, asked of the JAX that is installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.conftest import free_port

pytest.importorskip("jax", reason="it asks the installed JAX: needs primus-maxtext's environment")

JOIN = """
import jax, sys
jax.distributed.initialize(sys.argv[1], num_processes=1, process_id=0)
print("takes", jax.config.read("jax_cuda_visible_devices"))
"""
SLURM = {
    "SLURM_JOB_ID": "1",
    "SLURM_STEP_NODELIST": "n1",
    "SLURM_NTASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
}


def taken(**environ: str) -> str:
    """The GPUs that a process takes which joins the others as primus-maxtext's does."""
    whole = {**os.environ, "JAX_PLATFORMS": "cpu", **environ}
    command = [sys.executable, "-c", JOIN, f"127.0.0.1:{free_port()}"]
    result = subprocess.run(command, env=whole, capture_output=True, text=True, check=True, timeout=300)
    return next(line for line in result.stdout.splitlines() if line.startswith("takes")).removeprefix("takes ")


def test_under_slurm_jax_takes_one_gpu_unless_the_launcher_says_which() -> None:
    assert taken(**SLURM, JAX_LOCAL_DEVICE_IDS="0,1,2,3") == "0,1,2,3"
    assert taken(**SLURM) == "0", "if this is no longer so, JAX_LOCAL_DEVICE_IDS is needed for GPUS_PER_NODE alone"
