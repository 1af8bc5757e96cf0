"""The checkpoints of a folder are those that Orbax committed.

Orbax takes every folder that is named as a number for a checkpoint. An empty one with a high number is the one that
training would resume from, and takes a place of `max_num_checkpoints_to_keep` from a whole one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from primus_maxtext.checkpoints import COMMITTED
from primus_train.kit.patches import Patch

__all__ = ["PATCH"]


def _apply() -> None:
    from orbax.checkpoint import path as paths

    kind = type(paths.step.standard_name_format())
    theirs = kind.find_all

    def committed(self: Any, base: Any) -> Iterator[Any]:
        return (found for found in theirs(self, base) if (found.path / COMMITTED).exists())

    kind.find_all = committed


PATCH = Patch(
    id="foreign-steps",
    reason="a stray folder that is named as a number would be resumed from, and push out a whole checkpoint",
    needed=lambda: True,
    apply=_apply,
    link="maxtext/common/checkpointing.py, create_orbax_checkpoint_manager",
    since=(0, 2),
    before=(0, 3),
)
