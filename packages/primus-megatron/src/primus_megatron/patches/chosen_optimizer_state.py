"""The distributed optimizer's state of the iteration that `ckpt_step` names, in checkpoints of the format `torch`.

Megatron takes the model from that iteration, and the optimizer's state from the newest one in the folder: weights and
moments of two moments in time, counted as the newer one.
"""

from __future__ import annotations

from typing import Any

from primus_megatron.patches._patch import patch

__all__ = ["PATCH"]


def _needed() -> bool:
    """Whether Megatron still reads the folder's newest iteration there, whatever was asked for."""
    import inspect

    from megatron.training import checkpointing

    return "manual read of the tracker file" in inspect.getsource(checkpointing.load_checkpoint)


def _apply() -> None:
    from megatron.training import checkpointing, get_args

    theirs = checkpointing.read_metadata

    def read_metadata(tracker: str) -> Any:
        args = get_args()
        asked = args.load and tracker == checkpointing.get_checkpoint_tracker_filename(args.load)
        return (args.ckpt_step, False) if asked and args.ckpt_step else theirs(tracker)

    checkpointing.read_metadata = read_metadata


PATCH = patch(
    id="chosen-optimizer-state",
    reason="with ckpt_step, the distributed optimizer's state would be that of the newest checkpoint",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/checkpointing.py",
    needed=_needed,
    apply=_apply,
)
