"""Documents that `prepare_text` wrote, as one of TorchTitan's datasets. Runs in the worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["NAME", "register"]

NAME = "primus_text"
"""What `dataloader.dataset` is called when Primus prepared the text."""


def register() -> None:
    """Add the dataset to TorchTitan's table, which is its documented way to add one."""
    from torchtitan.hf_datasets import DatasetConfig
    from torchtitan.hf_datasets.text_datasets import DATASETS

    DATASETS[NAME] = DatasetConfig(path="", loader=_load, sample_processor=lambda sample: sample["text"])


def _load(folder: str) -> Any:
    """In memory, so that nothing is written below ~/.cache; order and position are TorchTitan's to keep."""
    from datasets import Dataset

    with (Path(folder) / "documents.jsonl").open(encoding="utf-8") as lines:
        return Dataset.from_dict({"text": [json.loads(line)["text"] for line in lines]})
