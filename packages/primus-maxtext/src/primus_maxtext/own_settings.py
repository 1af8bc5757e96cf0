"""The settings that Primus adds to MaxText's, in one table."""

from __future__ import annotations

from primus_data.training.section import rows, rows_of_prefixes
from primus_train.kit.settings import PrimusSetting

__all__ = ["DATA", "SETTINGS"]

SETTINGS = (
    PrimusSetting("auto_continue_train", "bool", True,
        "continue from the newest checkpoint of an earlier, unfinished run",
        "MaxText loads the newest checkpoint of that run"),
)  # fmt: skip
"""Beside MaxText's own, at the top of a module's settings."""

_READER = "a reader of Primus instead of `dataset_type`"
DATA = (
    *rows(f"prepared in a step before the worker; {_READER}", "`vocab_size`; the last token is `mmap_eod_id`"),
    *rows_of_prefixes(_READER, "the same for the evaluation"),
    PrimusSetting("eod_id", "int", None,
        "the token that ends a document in `input` or `train_data_path`",
        "`mmap_eod_id`, which `reset_attention_mask` and `eod_mask_loss` need", least=0),
)  # fmt: skip
"""Below `data`."""
