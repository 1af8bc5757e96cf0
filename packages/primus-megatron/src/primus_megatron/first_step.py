"""Compares, after the first step, what Megatron's optimizer and scheduler hold with the settings of the run."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

from primus_core.errors import TrainingError
from primus_train.failed_loads import FailedLoads
from primus_train.kit.loaded_step import check_loaded_step

__all__ = ["check_first_step"]

Difference = tuple[str, Any, Any]
"""A setting, its value, and what is used instead."""


def check_first_step(failed: FailedLoads) -> None:
    """Let the first step end the run if it used other hyperparameters than the settings.

    A checkpoint may bring its own, and then the losses would be those of another run, without a word. One that cannot
    be loaded is remembered in `failed`.
    """
    from megatron.training import training

    step, load = training.train_step, training.load_checkpoint

    def loading(*rest: Any, **kwargs: Any) -> Any:
        args = training.get_args()
        path = os.path.join(args.load, f"iter_{args.ckpt_step:07d}") if args.ckpt_step else ""
        with failed.watched(*([path] if path else [])):
            found = load(*rest, **kwargs)
        if path and not args.finetune:
            check_loaded_step(found[0], args.ckpt_step, path)
        return found

    training.load_checkpoint = loading

    def first(forward: Any, data: Any, model: Any, optimizer: Any, scheduler: Any, *rest: Any, **kwargs: Any) -> Any:
        training.train_step = step
        result = step(forward, data, model, optimizer, scheduler, *rest, **kwargs)
        args = training.get_args()
        if not args.use_checkpoint_opt_param_scheduler:  # then the checkpoint's are wanted
            _refuse([*_of_scheduler(scheduler, args), *_of_groups(optimizer, scheduler, args)])
        return result

    training.train_step = first


def _refuse(compared: list[Difference]) -> None:
    found = [f"{name}: {value} set, {used} used" for name, value, used in compared if not _same(value, used)]
    if found:
        raise TrainingError(
            "the optimizer does not use the settings of this run",
            why="\n".join(dict.fromkeys(found)),
            fix="report this to Primus, with the version of megatron-core; use the earlier run's values until then",
        )


def _same(value: Any, used: Any) -> bool:
    numbers = isinstance(value, int | float) and isinstance(used, int | float)
    return math.isclose(value, used, rel_tol=1e-6) if numbers else bool(value == used)  # a rate may be in float32


def _of_scheduler(scheduler: Any, args: Any) -> Iterator[Difference]:
    batch = args.global_batch_size
    yield "lr", args.lr, scheduler.max_lr
    yield "min_lr", args.min_lr, scheduler.min_lr
    yield "lr_warmup_init", args.lr_warmup_init, scheduler.init_lr
    yield "lr_decay_style", args.lr_decay_style, scheduler.lr_decay_style
    yield "lr_decay_iters", args.lr_decay_iters, scheduler.lr_decay_steps / batch
    share = args.lr_warmup_fraction
    warmup = args.lr_warmup_iters if share is None else share * args.lr_decay_iters
    yield "lr_warmup_iters", warmup, scheduler.lr_warmup_steps / batch
    if args.lr_decay_style == "WSD":
        yield "lr_wsd_decay_iters", args.lr_wsd_decay_iters, scheduler.wsd_decay_steps / batch
    yield "start_weight_decay", args.start_weight_decay, scheduler.start_wd
    yield "end_weight_decay", args.end_weight_decay, scheduler.end_wd
    yield "weight_decay_incr_style", args.weight_decay_incr_style, scheduler.wd_incr_style


def _of_groups(optimizer: Any, scheduler: Any, args: Any) -> Iterator[Difference]:
    for group in optimizer.param_groups:
        yield "clip_grad", args.clip_grad, optimizer.config.clip_grad
        if group.get("default_config", True):
            yield "lr", args.lr, group.get("max_lr", args.lr)
            yield "min_lr", args.min_lr, group.get("min_lr", args.min_lr)
        elif group.get("max_lr") == args.lr and args.decoupled_lr is not None:
            yield "decoupled_lr", args.decoupled_lr, group["max_lr"]
        yield "the learning rate of the step", scheduler.get_lr(group), float(group["lr"])
        decay = scheduler.get_wd(group) * group.get("wd_mult", 1.0)
        yield "weight_decay", decay, float(group["weight_decay"])
        if args.optimizer == "adam":
            yield "adam_beta1 and adam_beta2", (args.adam_beta1, args.adam_beta2), tuple(group["betas"])
            yield "adam_eps", args.adam_eps, group["eps"]
