"""What this rank holds of the model, for `verify`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker

from primus_train.kit import worker
from primus_train.kit.replicas import WANTED, Copy

__all__ = ["copies", "ungathered_after"]


def copies(chunks: Sequence[Any]) -> Iterator[Copy]:
    """Each parameter. Ranks of one stage hold the same, except what tensor and expert parallelism divide."""
    stage = parallel_state.get_pipeline_model_parallel_rank()
    for number, chunk in enumerate(chunks):
        for name, parameter in chunk.named_parameters():
            shared = getattr(parameter, "shared_embedding", False)  # by the first and the last stage
            where = "shared" if shared else f"stage {stage}.{number}"
            piece = f"{where} {_piece(parameter)}"
            data = parameter.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            yield Copy("embedding.word_embeddings.weight" if shared else name, piece, worker.rank(), data)
    yield from _generators(stage)


def _generators(stage: int) -> Iterator[Copy]:
    """The states from which dropout draws, where tensors or experts are divided. Stages may have equal ones."""
    divided = {
        "model-parallel-rng": f"tp {parallel_state.get_tensor_model_parallel_rank()}",
        "expert-parallel-rng": f"ep {parallel_state.get_expert_model_parallel_rank()} tp {_expert_tensor_rank()}",
    }
    for name, state in get_cuda_rng_tracker().get_states().items():
        if name in divided:
            data = state.cpu().numpy()
            yield Copy(f"generator '{name}' of stage {stage}", divided[name], worker.rank(), data, is_random=True)


def _piece(parameter: Any) -> str:
    tensor = getattr(parameter, "tensor_model_parallel", False)
    if not getattr(parameter, "allreduce", True):  # an expert's
        return f"ep {parallel_state.get_expert_model_parallel_rank()} tp {_expert_tensor_rank()}"
    return f"tp {parallel_state.get_tensor_model_parallel_rank()}" if tensor else ""


def _expert_tensor_rank() -> int:
    return int(parallel_state.get_expert_tensor_parallel_rank())


@contextmanager
def ungathered_after(chunks: Sequence[Any]) -> Iterator[None]:
    """Undo the gathering of weights that a save begins with, so that the next step gathers them itself.

    A trial saves after each step: what overlaps (`overlap_param_gather`) would never run. Does nothing unless `verify`
    asks.
    """
    overlapping = [chunk for chunk in chunks if worker.variable(WANTED) and chunk.ddp_config.overlap_param_gather]
    buffers = [buffer for chunk in overlapping for buffer in (*chunk.buffers, *chunk.expert_parallel_buffers)]
    kept = [buffer.param_data.clone() for buffer in buffers]
    yield
    for buffer, before in zip(buffers, kept, strict=True):
        buffer.param_data.copy_(before)
    for chunk in overlapping:
        for group in (*chunk.bucket_groups, *chunk.expert_parallel_bucket_groups):
            group.param_gather_dispatched = False
