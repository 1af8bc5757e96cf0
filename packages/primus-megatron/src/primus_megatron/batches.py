"""The data sets and the forward step: `.bin`/`.idx` blends or mock data, and the loss of a micro-batch.

Every rank of a tensor-parallel group reads the batch itself (the files are mapped, so they are in memory once a node):
nothing is broadcast, and the code is the same for every version of Megatron.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["datasets", "forward_step"]

Batch = dict[str, Any]
_OPTIONAL = {
    "multiple_validation_sets": "multiple_validation_sets",
    "full_validation": "full_validation",
    "num_dataset_builder_threads": "num_dataset_builder_threads",
    "mmap_bin_files": "mmap_bin_files",
    "object_storage_cache_path": "object_storage_cache_path",
    "mid_level_dataset_surplus": "mid_level_dataset_surplus",
    "allow_ambiguous_pad_tokens": "allow_ambiguous_pad_tokens",
    "fast_cache_load": "dataloader_fast_cache_load",
    "defer_npy_index_mmap": "dataloader_defer_npy_index_mmap",
}
"""Fields of the data set's configuration that some versions have, and the arguments that they come from."""


def datasets(samples: Any, vp_stage: int | None = None) -> Any:
    """Training, validation and test data, of `samples` sequences each. Megatron calls it."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, MockGPTDataset
    from megatron.training import get_args

    args = get_args()
    kind = MockGPTDataset if args.mock_data else GPTDataset
    return BlendedMegatronDatasetBuilder(kind, samples, lambda: True, _config(args)).build()


datasets.is_distributed = True  # type: ignore[attr-defined]  # by which Megatron knows that every rank calls it


def _config(args: Any) -> Any:
    from dataclasses import fields

    from megatron.core.datasets.gpt_dataset import GPTDatasetConfig
    from megatron.training.utils import get_blend_and_blend_per_split

    blend, per_split = get_blend_and_blend_per_split(args)
    sizes = args.per_dataset_sequences_path
    given = {field: getattr(args, name) for field, name in _OPTIONAL.items() if hasattr(args, name)}
    given["sequences_per_dataset"] = json.loads(Path(sizes).read_text(encoding="utf-8")) if sizes else None
    known = {field.name for field in fields(GPTDatasetConfig)}
    return GPTDatasetConfig(
        random_seed=args.seed,
        sequence_length=args.seq_length,
        blend=blend,
        blend_per_split=per_split,
        split=args.split,
        path_to_cache=args.data_cache_path,
        tokenizer=_tokenizer(args),
        reset_position_ids=args.reset_position_ids,
        reset_attention_mask=args.reset_attention_mask,
        eod_mask_loss=args.eod_mask_loss,
        create_attention_mask=args.create_attention_mask_in_dataloader,
        **{name: value for name, value in given.items() if name in known},
    )


def _tokenizer(args: Any) -> Any:
    if getattr(args, "legacy_tokenizer", False):
        from megatron.training import get_tokenizer

        return get_tokenizer()
    from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer

    return build_tokenizer(args)


def forward_step(
    batches: Iterator[Batch], model: Any, return_schedule_plan: bool = False
) -> tuple[Any, Callable[..., Any]]:
    """One micro-batch through this rank's part of the model. Megatron calls it."""
    from megatron.core.utils import get_attr_wrapped_model
    from megatron.training.utils import is_first_or_last_pipeline_stage

    batch: Batch = {}
    if is_first_or_last_pipeline_stage(get_attr_wrapped_model(model, "vp_stage")):
        batch = _of_this_context_rank({name: value.cuda(non_blocking=True) for name, value in next(batches).items()})
    mask = batch.get("loss_mask")
    words = (batch.get("tokens"), batch.get("position_ids"), batch.get("attention_mask"))
    run = model.build_schedule_plan if return_schedule_plan else model
    return run(*words, labels=batch.get("labels"), loss_mask=mask), partial(_loss, mask)


def _of_this_context_rank(batch: Batch) -> Batch:
    """Context parallelism: a sequence is cut into two pieces a rank, one from each end, which is equal work."""
    from megatron.core import parallel_state

    size, rank = parallel_state.get_context_parallel_world_size(), parallel_state.get_context_parallel_rank()
    if size == 1:
        return batch
    import torch

    def mine(name: str, value: Any) -> Any:
        pieces = value.chunk(2 * size, dim=2 if name == "attention_mask" else 1)
        return torch.cat((pieces[rank], pieces[2 * size - 1 - rank]), dim=2 if name == "attention_mask" else 1)

    return {name: mine(name, value) for name, value in batch.items()}


def _loss(mask: Any, losses: Any) -> tuple[Any, Any, Batch]:
    """The sum over the tokens that count, how many they are, and both for the log."""
    import torch
    from megatron.core.rerun_state_machine import get_rerun_state_machine
    from megatron.training import get_args

    counts = mask.view(-1).float()
    total = torch.sum(losses.view(-1).float() * counts)
    tokens = counts.sum().detach().to(torch.int)
    if get_args().check_for_nan_in_loss_and_grad:
        for name, wrong in (("NaN", torch.isnan), ("Inf", torch.isinf)):
            get_rerun_state_machine().validate_result(
                result=total, rejection_func=wrong, message=f"found {name} in local forward loss calculation",
                tolerance=0.0, fatal=True,
            )  # fmt: skip
    return total, tokens, {"lm loss": torch.cat([total.detach().view(1), tokens.view(1)])}
