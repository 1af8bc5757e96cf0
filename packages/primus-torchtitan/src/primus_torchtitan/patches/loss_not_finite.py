"""TorchTitan ends at the first loss that is not finite; `on_non_finite` of the experiment decides that."""

from __future__ import annotations

import math
import types

from primus_torchtitan.patches._patch import patch

__all__ = ["PATCH"]


def _apply() -> None:
    from torchtitan import trainer

    # The one use of `math` in this module is the check, between the step and its metrics.
    trainer.math = types.SimpleNamespace(**{**vars(math), "isfinite": lambda _: True})


PATCH = patch(
    id="loss-not-finite",
    reason="on_non_finite decides what follows a loss that is not finite; TorchTitan 0.3 would end at the first one",
    link="https://github.com/pytorch/torchtitan/blob/v0.3.0/torchtitan/trainer.py",
    needed=lambda: True,
    apply=_apply,
)
