"""Megatron's log in the form of Primus: a line in `metrics.jsonl` and one in the log, per iteration and evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from primus_core.metrics import Metrics, Validation, tell
from primus_core.work import Work

__all__ = ["StepRecorder"]


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


class StepRecorder:
    """Stands around what the loop calls after every iteration, and for every evaluation."""

    def __init__(self, *, file: str, reports: bool, work: Work) -> None:
        self.file, self.reports, self.work = file, reports, work
        self.last_step, self.last_time = 0, 0.0

    def install(self, also: Callable[[], None]) -> None:
        """Record each logged iteration and each evaluation, and call `also` after every iteration."""
        from megatron.training import training

        theirs, step = training.training_log, training.train_step

        def begun(*args: Any, **kwargs: Any) -> Any:
            if not self.last_time:  # what came before the first iteration was loading
                self.last_step, self.last_time = training.get_args().iteration, time.perf_counter()
            return step(*args, **kwargs)

        def logged(loss: Mapping[str, Any], total: Any, lr: Any, iteration: int, *rest: Any, **kwargs: Any) -> Any:
            with _without_their_line():
                result = theirs(loss, total, lr, iteration, *rest, **kwargs)
            if iteration % training.get_args().log_interval == 0:
                self.record(loss, lr, iteration, grad_norm=rest[3])
            also()
            return result

        training.train_step, training.training_log = begun, logged
        self._install_evaluation(training)

    def _install_evaluation(self, training: Any) -> None:
        theirs, evaluate = training.evaluate_and_print_results, training.evaluate
        losses: list[float] = []

        def evaluated(*args: Any, **kwargs: Any) -> Any:
            result = evaluate(*args, **kwargs)
            losses.extend(float(value) for name, value in (result[0] or {}).items() if name == "lm loss")
            return result

        def told(prefix: str, step: Any, data: Any, model: Any, iteration: int, *rest: Any, **kwargs: Any) -> None:
            began = time.perf_counter()
            losses.clear()
            with _without_their_line():
                theirs(prefix, step, data, model, iteration, *rest, **kwargs)
            self.last_time += time.perf_counter() - began  # it is no part of a step
            if losses and self.reports:  # of several sets of data, the first
                (self.tell_test if "test set" in prefix else self.record_validation)(iteration, losses[0])

        training.evaluate, training.evaluate_and_print_results = evaluated, told

    def record(self, loss: Mapping[str, Any], lr: Any, iteration: int, grad_norm: Any) -> None:
        """Add this iteration's metrics, on the rank that reports them."""
        now = time.perf_counter()
        seconds = (now - self.last_time) / max(iteration - self.last_step, 1)
        self.last_step, self.last_time = iteration, now
        if not self.reports or "lm loss" not in loss:
            return
        tell(self.metrics(float(loss["lm loss"]), lr, iteration, grad_norm, seconds), self.file)

    def record_validation(self, iteration: int, loss: float) -> None:
        """Add this evaluation."""
        from megatron.training import get_args

        steps = get_args().train_iters
        tell(Validation(step=iteration, steps=steps, validation_loss=loss, time=time.time()), self.file)

    def tell_test(self, iteration: int, loss: float) -> None:
        """Say what the data for a last test lose."""
        print(f"test loss after iteration {iteration}: {loss:.5f}", flush=True)

    def metrics(self, loss: float, lr: Any, iteration: int, grad_norm: Any, seconds: float) -> Metrics:
        """One iteration; where the plan has no count of floating-point operations, with Megatron's."""
        import torch
        from megatron.core.num_microbatches_calculator import get_current_global_batch_size
        from megatron.training import get_args
        from megatron.training.training import num_floating_point_operations

        args, batch = get_args(), get_current_global_batch_size()
        rate = batch * args.seq_length / seconds
        counted = num_floating_point_operations(args, batch) / seconds / args.world_size / 1e12
        return Metrics(
            step=iteration,
            steps=args.train_iters,
            loss=loss,
            lr=None if lr is None else float(lr),
            grad_norm=None if grad_norm is None else float(grad_norm),
            global_batch_size=batch,
            tokens=args.consumed_train_samples * args.seq_length,
            tokens_per_second=rate,
            tokens_per_second_per_gpu=rate / args.world_size,
            **self.work.rates(rate / args.world_size, counted),
            step_time_s=seconds,
            memory_gib=torch.cuda.max_memory_reserved() / 2**30,
            time=time.time(),
        )
