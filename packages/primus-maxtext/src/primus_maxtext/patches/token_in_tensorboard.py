"""What MaxText writes of its configuration for TensorBoard holds the token for huggingface.co."""

from __future__ import annotations

from typing import Any

from primus_train.kit.patches import Patch

__all__ = ["PATCH"]

_SECRET = "hf_access_token"  # noqa: S105  # a setting's name


def _needed() -> bool:
    return True


def _apply() -> None:
    from maxtext.utils import max_utils

    theirs = max_utils.add_text_to_summary_writer

    def without_token(key: str, value: str, summary_writer: Any) -> None:
        if key != _SECRET:
            theirs(key, value, summary_writer)

    max_utils.add_text_to_summary_writer = without_token


PATCH = Patch(
    id="token-in-tensorboard",
    reason="MaxText writes hf_access_token, taken from HF_TOKEN, into TensorBoard's files",
    needed=_needed,
    apply=_apply,
    link="maxtext/utils/maxtext_utils.py, add_config_to_summary_writer",
    since=(0, 2),
    before=(0, 3),
)
