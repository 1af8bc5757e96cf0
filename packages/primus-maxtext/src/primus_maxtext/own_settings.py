"""The settings that Primus adds to MaxText's, in one table."""

from __future__ import annotations

from primus_train.kit.settings import Own
from primus_train.text.data import rows

__all__ = ["DATA", "SETTINGS"]

SETTINGS = (
    Own("auto_continue_train", "bool", True, "continue from the newest checkpoint of an earlier, unfinished run",
        "its newest checkpoint is one of this run's, which MaxText loads"),
)  # fmt: skip
"""Beside MaxText's own, at the top of a module's settings."""

DATA = (
    *rows(
        "a step before the worker; `dataset_type: grain`, `grain_file_type: mmap_npy`, `grain_train_files`",
        "`vocab_size`; the last token is `mmap_eod_id`",
    ),
    Own("train_data_path", "list", None,
        "prefixes of `.bin`/`.idx` files to train on, each with a weight before it or none with any",
        "`dataset_type: grain`, `grain_file_type: mmap_npy`, `grain_train_files`"),
    Own("valid_data_path", "list", None, "the same, to evaluate on", "`grain_eval_files`"),
    Own("eod_id", "int", None, "the token that ends a document in these files", "`mmap_eod_id`", least=0),
)  # fmt: skip
"""Below `data`."""
