"""Buffers of a pipeline's stages, which a later torch restores after it has learned the shapes of a stage.

It trains each stage once for that, before the first step. TorchTitan's experts count the tokens that they get, and the
bias that balances them follows from the counts: with those of that extra training, its first update was another one.
"""

from __future__ import annotations

from typing import Any

from primus_torchtitan.patches._patch import patch, torch_before_2_14

__all__ = ["PATCH"]


def _apply() -> None:
    from torch.distributed.pipelining.stage import PipelineStage

    stage: Any = PipelineStage
    infer, clean_up = stage._forward_metadata_inference, stage._post_metadata_inference_cleanup  # noqa: SLF001

    def inferred(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._buffers_before = [(buffer, buffer.detach().clone()) for buffer in self.submod.buffers()]
        return infer(self, *args, **kwargs)

    def cleaned_up(self: Any) -> None:
        clean_up(self)
        for buffer, before in self.__dict__.pop("_buffers_before", ()):
            buffer.detach().copy_(before)

    stage._forward_metadata_inference = inferred  # noqa: SLF001
    stage._post_metadata_inference_cleanup = cleaned_up  # noqa: SLF001


PATCH = patch(
    id="torch213-pipeline-buffers",
    reason="torch 2.13 learns the shapes of a stage by a training that changes its buffers, such as counts of tokens",
    link="https://github.com/pytorch/pytorch/pull/188558",
    needed=torch_before_2_14,
    apply=_apply,
)
