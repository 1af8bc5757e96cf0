"""What an experiment says wins over the machine's defaults, and loses to the person's own."""

from __future__ import annotations

import pytest
from tests.core.test_machine_defaults import Planned, planned

__all__ = ["planned"]


def test_conditions_and_the_gid_follow_the_experiments_env(planned: Planned) -> None:
    found = planned()
    assert (found["NCCL_IB_HCA"], found["NCCL_IB_GID_INDEX"]) == ("=rdma1", "1")
    assert found["ROCBLAS_DEFAULT_ATOMICS_MODE"] == "0"


@pytest.mark.parametrize("by_option", [False, True])
def test_the_persons_own_win_over_the_experiments(planned: Planned, by_option: bool) -> None:
    own = {"PRIMUS_DETERMINISTIC": "0", "NCCL_IB_HCA": "=rdma0"}
    options = [word for name, value in own.items() for word in ("--env", f"{name}={value}")]
    found = planned(*options) if by_option else planned(**own)
    assert (found["NCCL_IB_HCA"], found["NCCL_IB_GID_INDEX"]) == ("=rdma0", "3")
    assert "ROCBLAS_DEFAULT_ATOMICS_MODE" not in found
