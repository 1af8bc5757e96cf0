"""Puts a fault into a framework when it is imported, in trainings with several ranks: PRIMUS_TEST_FAULT names it."""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

Fault = Callable[[Any], None]
FAULTS: dict[str, tuple[str, Fault, bool]] = {}


def fault(module: str, *, alone: bool = False) -> Callable[[Fault], Fault]:
    """Register a function that gets the imported `module`. `alone`: also with one rank."""

    def register(function: Fault) -> Fault:
        FAULTS[function.__name__] = (module, function, alone)
        return function

    return register


@fault("megatron.core.distributed.finalize_model_grads")
def norms_not_summed(module: Any) -> None:
    """Gradients of norms under sequence parallelism: each rank has those of its part of the sequence."""
    module._allreduce_non_tensor_model_parallel_grads = lambda *_, **__: None


@fault("megatron.core.distributed.finalize_model_grads")
def tied_embeddings_not_summed(module: Any) -> None:
    """The first stage has the gradient of the input, the last one that of the output."""
    module._allreduce_word_embedding_grads = lambda *_, **__: None


@fault("megatron.core.optimizer.optimizer")
def norm_of_one_rank(module: Any) -> None:
    """The gradient norm is that of a rank's own part."""
    import math

    def own_norm(grads: Any, *_: Any, **__: Any) -> float:
        return math.sqrt(sum(float(grad.float().norm()) ** 2 for grad in grads))

    module.get_grad_norm_fp32 = own_norm


@fault("megatron.core.distributed.finalize_model_grads")
def gradients_doubled(module: Any) -> None:
    """As if they were summed where they should be averaged."""
    whole = module.finalize_model_grads

    def doubled(model: Any, *args: Any, **kwargs: Any) -> None:
        whole(model, *args, **kwargs)
        for part in model:
            for param in part.parameters():
                param.main_grad.mul_(2)

    module.finalize_model_grads = doubled


@fault("megatron.core.optimizer.optimizer")
def stale_weight(module: Any) -> None:
    """Rank 1 does not take the update of one weight."""
    step = module.FP32Optimizer.step_with_ready_grads

    def stale(self: Any) -> Any:
        params = self.get_parameters()
        kept = params[0].detach().clone()
        result = step(self)
        if os.environ["RANK"] == "1":
            params[0].data.copy_(kept)
        return result

    module.FP32Optimizer.step_with_ready_grads = stale


@fault("megatron.core.distributed.param_and_grad_buffer")
def gather_lost(module: Any) -> None:
    """The gathering of weights that overlaps with the forward pass never begins."""
    group = module._ParamAndGradBucketGroup
    start = group.start_param_sync

    def start_if_forced(self: Any, force_sync: bool = False) -> None:
        if force_sync or not self.ddp_config.overlap_param_gather:
            start(self, force_sync)
        self.param_gather_dispatched = True

    group.start_param_sync = start_if_forced


@fault("megatron.core.tensor_parallel.random")
def equal_dropout_seeds(module: Any) -> None:
    """All tensor ranks draw from the seed of the first one."""
    module.get_tensor_model_parallel_rank = lambda *_, **__: 0


def _titan_grads(module: Any, change: Callable[[list[Any]], Any]) -> None:
    clip = module.clip_grad_norm_

    def changed(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        parameters = list(parameters)
        change(parameters)
        return clip(parameters, *args, **kwargs)

    module.clip_grad_norm_ = changed


@fault("torchtitan.distributed.utils")
def titan_doubled(module: Any) -> None:
    """As if gradients were summed where they should be averaged."""
    _titan_grads(module, lambda parameters: [p.grad.mul_(2) for p in parameters])


@fault("torchtitan.distributed.utils")
def titan_norms_halved(module: Any) -> None:
    """As if those of norms were averaged over the tensor axis, and not summed."""
    _titan_grads(module, lambda parameters: [p.grad.mul_(0.5) for p in parameters if p.ndim == 1])


@fault("torchtitan.distributed.utils")
def titan_not_a_number(module: Any) -> None:
    """One parameter's gradient."""
    _titan_grads(module, lambda parameters: parameters[5].grad.mul_(float("nan")))


@fault("torchtitan.trainer", alone=True)
def titan_first_micro_batch(module: Any) -> None:
    """Gradients of micro-batches after the first are dropped, where there are more than in the reference."""
    forward = module.Trainer.forward_backward_step

    def first_alone(self: Any, **kwargs: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        if self.gradient_accumulation_steps < 8 or (self.calls - 1) % 8 == 0:
            return forward(self, **kwargs)
        kept = [(p, p.grad.clone()) for part in self.model_parts for p in part.parameters()]
        loss = forward(self, **kwargs)
        for param, grad in kept:
            param.grad.copy_(grad)
        return loss

    module.Trainer.forward_backward_step = first_alone


@fault("torchtitan.trainer")
def titan_moment_lost(module: Any) -> None:
    """The second moment of one parameter is forgotten at each step."""
    step = module.Trainer.train_step

    def forgetful(self: Any, *args: Any, **kwargs: Any) -> Any:
        for optimizer in self.optimizers.optimizers:
            for state in list(optimizer.state.values())[3:4]:
                state["exp_avg_sq"].zero_()
        return step(self, *args, **kwargs)

    module.Trainer.train_step = forgetful


@fault("torchtitan.trainer")
def titan_hangs(module: Any) -> None:
    """Rank 1 never begins its first step, and does not end when it is told to."""
    step = module.Trainer.train_step

    def hang(self: Any, *args: Any, **kwargs: Any) -> Any:
        if os.environ["RANK"] == "1":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
        return step(self, *args, **kwargs)

    module.Trainer.train_step = hang


@fault("torchtitan.trainer")
def titan_last_update_missed(module: Any) -> None:
    """Rank 1 does not take the update of one weight at the last step, which no loss and no checkpoint shows."""
    step = module.Trainer.train_step

    def stale(self: Any, *args: Any, **kwargs: Any) -> Any:
        weight = next(self.model_parts[0].parameters())
        local = weight.to_local() if hasattr(weight, "to_local") else weight.data
        kept = local.detach().clone()
        result = step(self, *args, **kwargs)
        if os.environ["RANK"] == "1" and self.step == self.config.training.steps:
            local.data.copy_(kept)
        return result

    module.Trainer.train_step = stale


@fault("torchtitan.trainer")
def titan_tokens_counted_twice(module: Any) -> None:
    """The loss is divided by twice the number of valid tokens, as if each rank had its own."""
    forward = module.Trainer.forward_backward_step

    def twice(self: Any, **kwargs: Any) -> Any:
        return forward(self, **{**kwargs, "global_valid_tokens": 2 * kwargs["global_valid_tokens"]})

    module.Trainer.forward_backward_step = twice


@fault("megatron.core.distributed.finalize_model_grads")
def router_bias_not_updated(module: Any) -> None:
    """The bias by which experts without an auxiliary loss are balanced stays as it was."""
    module._update_router_expert_bias = lambda *_, **__: None


@fault("megatron.core.models.common.embeddings.rotary_pos_embedding")
def rope_of_one_stage(module: Any) -> None:
    """The last stage turns by twice the angle. (To count positions from 1 changes nothing: only distances count.)"""
    emb = module.RotaryEmbedding.get_emb

    def doubled(self: Any, *args: Any, **kwargs: Any) -> Any:
        return emb(self, *args, **kwargs) * (1 + (os.environ["RANK"] != "0"))

    module.RotaryEmbedding.get_emb = doubled


def _maxtext_grads(module: Any, change: Callable[[Any], Any]) -> None:
    """One process has several devices."""
    import jax

    apply = module.TrainStateNNX.apply_gradients

    def changed(self: Any, grads: Any, **kwargs: Any) -> Any:
        return apply(self, change(grads) if jax.device_count() > 1 else grads, **kwargs)

    module.TrainStateNNX.apply_gradients = changed


@fault("maxtext.common.train_state_nnx", alone=True)
def maxtext_doubled(module: Any) -> None:
    """As if gradients were summed where they should be averaged."""
    import jax

    _maxtext_grads(module, lambda grads: jax.tree.map(lambda grad: 2 * grad, grads))


@fault("maxtext.common.train_state_nnx", alone=True)
def maxtext_norms_halved(module: Any) -> None:
    """As if those of norms were averaged over the tensor axis, and not summed."""
    import jax

    def halved(path: Any, grad: Any) -> Any:
        return grad / 2 if "scale" in jax.tree_util.keystr(path) else grad

    _maxtext_grads(module, lambda grads: jax.tree_util.tree_map_with_path(halved, grads))


@fault("maxtext.common.train_state_nnx", alone=True)
def maxtext_not_a_number(module: Any) -> None:
    """The gradient of the output layer."""
    import jax

    def broken(path: Any, grad: Any) -> Any:
        return grad * float("nan") if "logits_dense" in jax.tree_util.keystr(path) else grad

    _maxtext_grads(module, lambda grads: jax.tree_util.tree_map_with_path(broken, grads))


@fault("maxtext.utils.gradient_accumulation", alone=True)
def maxtext_first_micro_batch(module: Any) -> None:
    """Gradients of micro-batches after the first are dropped."""
    import jax

    accumulate = module.gradient_accumulation_loss_and_grad

    def first_alone(loss: Any, config: Any, model: Any, params: Any, shardings: Any, data: Any, rng: Any) -> Any:
        size = config.gradient_accumulation_steps
        repeated = jax.tree.map(lambda value: jax.numpy.tile(value[: len(value) // size], (size, 1)), data)
        return accumulate(loss, config, model, params, shardings, repeated, rng)

    module.gradient_accumulation_loss_and_grad = first_alone


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, function: Fault) -> None:
        self.name, self.function = name, function

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def with_fault(module: Any) -> None:
            execute(module)
            self.function(module)

        spec.loader.exec_module = with_fault
        return spec


name = os.environ.get("PRIMUS_TEST_FAULT", "")
if name and os.environ.get("RANK"):
    module, function, alone = FAULTS[name]
    if alone or os.environ.get("WORLD_SIZE", "1") != "1":
        sys.meta_path.insert(0, _Finder(module, function))
