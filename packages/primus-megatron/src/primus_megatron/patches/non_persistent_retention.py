"""Which non-persistent checkpoints are deleted: finished ones that a newer finished one has replaced.

Megatron keeps the folder with the highest number, before it saves the next. A stray `iter_9999999` or one that was cut
off makes it delete the last whole checkpoint, and it fails over a folder of a person such as `iter_best`.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from primus_megatron.patches._patch import patch

__all__ = ["PATCH"]

_ITERATION = re.compile(r"iter_(\d{7,})")


def _apply() -> None:
    from megatron.training import checkpointing, get_args

    def cleanup(save_dir: str, leave_ckpt_num: int = 1, do_async: bool = False) -> None:
        import torch

        if torch.distributed.is_initialized() and torch.distributed.get_rank():
            return
        stale = _stale(save_dir, leave_ckpt_num, getattr(get_args(), "curr_iteration", None))
        if do_async:
            threading.Thread(target=_remove, args=(stale,)).start()
        else:
            _remove(stale)

    checkpointing.cleanup_old_non_persistent_checkpoint = cleanup


def _stale(folder: str, keep: int, iteration: int | None) -> list[Path]:
    """The finished checkpoints of this training before the newest `keep` of them."""
    found = [
        (int(match[1]), path) for path in Path(folder).glob("iter_*") if (match := _ITERATION.fullmatch(path.name))
    ]
    ours = [(number, path) for number, path in found if iteration is None or number <= iteration]
    finished = sorted((number, path) for number, path in ours if _is_finished(path))
    return [path for _, path in finished[:-keep]]


def _is_finished(path: Path) -> bool:
    last = path / ".metadata"  # torch.distributed.checkpoint writes it when all ranks are done
    return not path.is_symlink() and last.is_file() and os.path.getsize(last) > 0


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        shutil.rmtree(path)


PATCH = patch(
    id="non-persistent-retention",
    reason="a stray or cut-off folder made Megatron delete the last whole non-persistent checkpoint",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/checkpointing.py",
    needed=lambda: True,
    apply=_apply,
)
