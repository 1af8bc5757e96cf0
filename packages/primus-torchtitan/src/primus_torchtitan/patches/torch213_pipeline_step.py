"""Pipeline steps over given microbatches, which torch's schedules take since 2.14 and TorchTitan passes."""

from __future__ import annotations

from typing import Any

from primus_torchtitan.patches._patch import patch, torch_before_2_14

__all__ = ["PATCH"]


def _step_of_single(self: Any) -> None:
    self._stage.has_backward = self._has_backward
    self._stage.clear_runtime_states()


def _step_of_multi(self: Any) -> None:
    for stage in self._stages:
        stage.has_backward = self._has_backward
        stage.clear_runtime_states()


def _with_microbatches(schedule: Any, begin: Any) -> None:
    step = schedule.step

    def step_over_microbatches(
        self: Any,
        *args: Any,
        arg_mbs: Any = None,
        kwarg_mbs: Any = None,
        target_mbs: Any = None,
        losses: Any = None,
        **rest: Any,
    ) -> Any:
        if kwarg_mbs is None:
            return step(self, *args, losses=losses, **rest)
        begin(self)
        return_outputs = rest.pop("return_outputs", True)
        self._step_microbatches(arg_mbs, kwarg_mbs, target_mbs, losses, return_outputs, **rest)
        return None

    schedule.step = step_over_microbatches


def _apply() -> None:
    from torch.distributed.pipelining.schedules import PipelineScheduleMulti, PipelineScheduleSingle

    _with_microbatches(PipelineScheduleSingle, _step_of_single)
    _with_microbatches(PipelineScheduleMulti, _step_of_multi)


PATCH = patch(
    id="torch213-pipeline-step",
    reason="TorchTitan 0.3 gives a pipeline its microbatches (arg_mbs, kwarg_mbs, target_mbs), new in torch 2.14",
    link="https://docs.pytorch.org/docs/stable/distributed.pipelining.html",
    needed=torch_before_2_14,
    apply=_apply,
)
