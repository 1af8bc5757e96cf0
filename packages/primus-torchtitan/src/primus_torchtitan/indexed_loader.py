"""`.bin`/`.idx` files as TorchTitan's data loader, in the order in which Megatron reads them. Runs in the worker.

Its state is how many samples all ranks have consumed, so training continues at the sample, on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader

from primus_core.errors import TrainingError
from primus_data.training.batches import Batches
from primus_data.training.samples import Samples

__all__ = ["IndexedLoader", "NoTokenizer"]

Batch = tuple[dict[str, torch.Tensor], torch.Tensor]


class IndexedLoader(BaseDataLoader):  # type: ignore[misc]
    """A sample is a row of tokens; the labels are the same row, one further. Documents follow each other in a row."""

    @dataclass(kw_only=True, slots=True)
    class Config(HuggingFaceTextDataLoader.Config):  # type: ignore[misc]
        """What `Samples.of` reads; the rest is TorchTitan's."""

        told: Mapping[str, Any] = field(default_factory=dict)
        vocab_size: int = 0

    def __init__(
        self, config: Config, *, dp_world_size: int, dp_rank: int, seq_len: int, local_batch_size: int, **_: Any
    ) -> None:
        samples = Samples.of({**config.told, "length": seq_len})
        self.batches = Batches(samples, local_batch_size, dp_world_size, dp_rank, again=config.infinite)
        self.vocab_size = config.vocab_size

    def __iter__(self) -> Iterator[Batch]:
        return map(self._batch, self.batches)

    def _batch(self, rows: Any) -> Batch:
        if self.vocab_size and (largest := int(rows.max())) >= self.vocab_size:
            raise TrainingError(
                f"token id {largest} is outside the model's vocabulary of {self.vocab_size}",
                why="the data was prepared with another tokenizer, or the model's vocabulary is too small",
                fix=f"set model.vocab_size to at least {largest + 1}, or use the model's tokenizer",
            )
        tokens = torch.from_numpy(rows)
        positions = torch.arange(tokens.shape[1] - 1).repeat(tokens.shape[0], 1)
        return {"input": tokens[:, :-1].contiguous(), "positions": positions}, tokens[:, 1:].contiguous()

    def state_dict(self) -> dict[str, Any]:
        return {"consumed": self.batches.consumed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            self.batches.consumed = int(state_dict["consumed"])


class NoTokenizer(BaseTokenizer):  # type: ignore[misc]
    """Tokens are numbers already: no file of a tokenizer needs to be here."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):  # type: ignore[misc]
        """Nothing to be set."""

    def __init__(self, config: Config, *, tokenizer_path: str) -> None:
        super().__init__()

    def encode(self, *_: Any, **__: Any) -> list[int]:
        raise NotImplementedError

    def decode(self, *_: Any, **__: Any) -> str:
        raise NotImplementedError

    def get_vocab_size(self) -> int:
        raise NotImplementedError
