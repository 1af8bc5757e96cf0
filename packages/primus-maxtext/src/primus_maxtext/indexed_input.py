"""`.bin`/`.idx` files as MaxText's input, in the order in which Megatron reads them. Runs in the worker.

MaxText has no way to add a reader, so its two functions that make grain's iterators are replaced. Its checkpoints keep
the position of an `ElasticIterator` once for all processes, so that another number of them continues at the sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from grain.experimental import ElasticIterator

from primus_data.training.batches import Batches
from primus_data.training.samples import Samples

__all__ = ["SampleIterator", "install"]


class SampleIterator(ElasticIterator):  # type: ignore[misc]
    """Batches as MaxText's own pipeline for these files makes them. `restarts`: each look begins with the first."""

    def __init__(self, batches: Batches, split: Any, *, restarts: bool) -> None:  # grain's own would need its data set
        self._batches, self._split, self._restarts = batches, split, restarts

    def __iter__(self) -> SampleIterator:
        if self._restarts:
            self._batches.consumed = 0
        return self

    def __next__(self) -> dict[str, Any]:
        found = [self._split.map({"text": row.astype(np.int32)}) for row in next(self._batches)]
        return {name: np.stack([one[name] for one in found]) for name in found[0]}

    def get_state(self) -> dict[str, Any]:
        return {"consumed": self._batches.consumed}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._batches.consumed = int(state["consumed"])

    def close(self) -> None:
        self._batches.close()


def install(parts: Mapping[str, Any]) -> None:
    """Have MaxText read what a plan describes: `train`, and `validation` where it evaluates."""
    from maxtext.input_pipeline import input_pipeline_interface as interface

    def train(config: Any, mesh: Any, processes: list[int]) -> Any:
        told = {**parts["train"], "samples": config.steps * config.global_batch_size_to_load}
        return _iterator(told, config, mesh, processes, restarts=False)

    def evaluation(config: Any, mesh: Any, processes: list[int]) -> Any:
        return _iterator(parts["validation"], config, mesh, processes, restarts=True)

    interface.make_grain_train_iterator = train
    interface.make_grain_eval_iterator = evaluation


def _iterator(told: Mapping[str, Any], config: Any, mesh: Any, processes: list[int], *, restarts: bool) -> Any:
    import jax
    from maxtext.input_pipeline.data_processing_utils import get_local_batch_size
    from maxtext.input_pipeline.input_pipeline_utils import MegatronSplitInputsTargets, megatron_min_segment_length
    from maxtext.input_pipeline.multihost_dataloading import MultiHostDataLoadIterator

    split = MegatronSplitInputsTargets(
        eod_id=config.mmap_eod_id,
        reset_attention_mask=config.reset_attention_mask,
        eod_mask_loss=config.eod_mask_loss,
        min_segment_length=megatron_min_segment_length(config),
    )
    samples = Samples.of({**told, "length": config.max_target_length, "seed": config.data_shuffle_seed})
    again = not restarts or config.eval_steps > 0
    place, count = processes.index(jax.process_index()), len(processes)
    batch = get_local_batch_size(config)
    if restarts:
        batch = config.global_batch_size_to_load_eval // jax.process_count()
    batches = Batches(samples, batch, count, place, again=again)
    padded = config.generate_padding_batch_eval if restarts else config.generate_padding_batch_train
    return MultiHostDataLoadIterator(
        SampleIterator(batches, split, restarts=restarts),
        mesh,
        padded,
        expansion_loading_factor_for_grain=-1 if restarts else config.expansion_factor_real_data,
    )
