"""Tells the recorder of Primus what Megatron's loop does: steps, what they gave, evaluations and saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from primus_core import get_logger
from primus_core.errors import TrainingError
from primus_train.kit.recorder import Recorder, Step

__all__ = ["found_by_check", "install"]

_CHECK = "check_for_nan_in_loss_and_grad"
_VALIDATION = {
    16: "Megatron has saved a checkpoint; continue it on other devices to find out whether a device is faulty",
    17: "Megatron has repeated the step",
}
"""Exit codes of its `rerun_state_machine`."""


@contextmanager
def _without_their_line() -> Iterator[None]:
    """The line of Primus says it in the form of all backends."""
    from megatron.training import training

    shown = training.print_rank_last
    training.print_rank_last = lambda message: None
    try:
        yield
    finally:
        training.print_rank_last = shown


def install(recorder: Recorder, look: Callable[[], None]) -> None:
    """Stand around what the loop calls, and `look` for checkpoints after every iteration."""
    from megatron.training import training

    _install_steps(training, recorder, look)
    _install_saves(training, recorder)
    _install_evaluation(training, recorder)


def _install_steps(training: Any, recorder: Recorder, look: Callable[[], None]) -> None:
    from megatron.core.num_microbatches_calculator import get_current_global_batch_size

    theirs, step = training.training_log, training.train_step

    def begun(*args: Any, **kwargs: Any) -> Any:
        settings = training.get_args()
        recorder.clock.step(get_current_global_batch_size() * settings.seq_length)
        try:
            return step(*args, **kwargs)
        except RuntimeError as error:
            if "Unexpected result" not in str(error):
                raise
            # with `rerun_mode: disabled`, on the rank that found it
            raise recorder.ended_by(_CHECK, settings.curr_iteration + 1, str(error)) from error

    def logged(loss: Mapping[str, Any], total: Any, lr: Any, iteration: int, *rest: Any, **kwargs: Any) -> Any:
        with _without_their_line():
            result = theirs(loss, total, lr, iteration, *rest, **kwargs)
        args = training.get_args()
        if iteration % args.log_interval == 0 or iteration == args.train_iters:
            lap = recorder.clock.lap()
            if "lm loss" in loss:  # a rank of the last pipeline stage
                recorder.log(lap, _step(float(loss["lm loss"]), lr, iteration, grad_norm=rest[3]))
        with recorder.clock.saving():
            look()
        return result

    training.train_step, training.training_log = begun, logged


def _install_saves(training: Any, recorder: Recorder) -> None:
    """The end of one in the background, for which the loop may have to wait. The worker stands around the others."""
    training.maybe_finalize_async_save = _during(recorder.clock.saving, training.maybe_finalize_async_save)


def found_by_check(recorder: Recorder, code: Any) -> TrainingError | None:
    """The error for an exit code with which Megatron says that its check failed."""
    if code not in _VALIDATION:
        return None
    from megatron.training import get_args

    error = recorder.ended_by(_CHECK, get_args().curr_iteration + 1, _VALIDATION[code])
    error.exit_code = code
    return error


def _during(state: Callable[[], Any], call: Callable[..., Any]) -> Callable[..., Any]:
    def inside(*args: Any, **kwargs: Any) -> Any:
        with state():
            return call(*args, **kwargs)

    return inside


def _install_evaluation(training: Any, recorder: Recorder) -> None:
    theirs, evaluate = training.evaluate_and_print_results, training.evaluate
    losses: list[float] = []

    def evaluated(*args: Any, **kwargs: Any) -> Any:
        result = evaluate(*args, **kwargs)
        losses.extend(float(value) for name, value in (result[0] or {}).items() if name == "lm loss")
        return result

    def recorded(prefix: str, step: Any, data: Any, model: Any, iteration: int, *rest: Any, **kwargs: Any) -> None:
        losses.clear()
        with recorder.clock.evaluating(), _without_their_line():
            theirs(prefix, step, data, model, iteration, *rest, **kwargs)
        if losses and recorder.reports:  # of several sets of data, the first
            if "test set" in prefix:
                message = f"test loss after iteration {iteration}: {losses[0]:.5f}"
                get_logger().info("test_loss", message=message, step=iteration, loss=losses[0])
            else:
                recorder.validation(step=iteration, steps=training.get_args().train_iters, loss=losses[0])

    training.evaluate, training.evaluate_and_print_results = evaluated, recorded


def _step(loss: float, lr: Any, iteration: int, grad_norm: Any) -> Step:
    import torch
    from megatron.core.num_microbatches_calculator import get_current_global_batch_size
    from megatron.training import get_args
    from megatron.training.training import num_floating_point_operations

    args, batch = get_args(), get_current_global_batch_size()
    return Step(
        step=iteration,
        steps=args.train_iters,
        loss=loss,
        lr=None if lr is None else float(lr),
        grad_norm=None if grad_norm is None else float(grad_norm),
        global_batch_size=batch,
        tokens=args.consumed_train_samples * args.seq_length,
        devices=args.world_size,
        memory_gib=torch.cuda.max_memory_reserved() / 2**30,
        flops_per_token=num_floating_point_operations(args, batch) / (batch * args.seq_length),
    )
