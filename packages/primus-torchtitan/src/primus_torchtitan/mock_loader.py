"""Random tokens as TorchTitan's data loader: `training.mock_data`. Runs in the worker.

Its state is how many samples all ranks have consumed. A sample depends on its number alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader

__all__ = ["MockLoader"]

Batch = tuple[dict[str, torch.Tensor], torch.Tensor]
_VALIDATION = 64
"""Samples of a loader that ends."""


class MockLoader(BaseDataLoader):  # type: ignore[misc]
    """Rows of random tokens; the labels are the same row, one further."""

    @dataclass(kw_only=True, slots=True)
    class Config(HuggingFaceTextDataLoader.Config):  # type: ignore[misc]
        """The number of tokens, and a seed; the rest is TorchTitan's."""

        vocab_size: int = 0
        seed: int = 0

    def __init__(
        self, config: Config, *, dp_world_size: int, dp_rank: int, seq_len: int, local_batch_size: int, **_: Any
    ) -> None:
        self.config, self.length, self.batch = config, seq_len, local_batch_size
        self.ranks, self.rank, self.consumed = dp_world_size, dp_rank, 0

    def __iter__(self) -> Iterator[Batch]:
        while self.config.infinite or self.consumed < _VALIDATION:
            first = self.consumed + self.rank * self.batch
            tokens = torch.stack([self._sample(first + number) for number in range(self.batch)])
            self.consumed += self.ranks * self.batch
            positions = torch.arange(self.length).repeat(self.batch, 1)
            yield {"input": tokens[:, :-1].contiguous(), "positions": positions}, tokens[:, 1:].contiguous()

    def _sample(self, number: int) -> torch.Tensor:
        chosen = np.random.default_rng((self.config.seed, number))
        return torch.from_numpy(chosen.integers(0, self.config.vocab_size, self.length + 1))

    def state_dict(self) -> dict[str, Any]:
        return {"consumed": self.consumed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict:
            self.consumed = int(state_dict["consumed"])
