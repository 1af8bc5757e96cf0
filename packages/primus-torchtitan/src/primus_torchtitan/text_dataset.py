"""Documents that `prepare_text` wrote, as one of TorchTitan's datasets: for replays of earlier versions' runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from primus_core.errors import MachineError

__all__ = ["NAME", "register"]

NAME = "primus_text"
"""What `dataloader.dataset` is called when Primus prepared the text."""


def register(data_parallel: int) -> None:
    """Add the dataset to TorchTitan's table, which is its documented way to add one, for so many ranks that read."""
    from torchtitan.hf_datasets import DatasetConfig
    from torchtitan.hf_datasets.text_datasets import DATASETS

    def load(folder: str) -> Any:
        return _load(folder, data_parallel)

    DATASETS[NAME] = DatasetConfig(path="", loader=load, sample_processor=lambda sample: sample["text"])


def _load(folder: str, data_parallel: int) -> Any:
    """In memory, so that nothing is written below ~/.cache; order and position are TorchTitan's to keep."""
    from datasets import Dataset

    with (Path(folder) / "documents.jsonl").open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    if len(texts) < data_parallel:  # a rank without documents would look for one for ever
        raise MachineError(
            f"{folder} holds {len(texts)} documents, and {data_parallel} data-parallel ranks read them",
            fix="cut the text into more documents (data.document_chars), or give more text",
        )
    return Dataset.from_dict({"text": texts})
