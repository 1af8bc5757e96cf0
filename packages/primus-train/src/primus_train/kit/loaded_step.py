"""Compares the step that a checkpoint holds with the one that its folder is named after."""

from __future__ import annotations

from primus_core.errors import RequestError

__all__ = ["check_loaded_step"]


def check_loaded_step(loaded: int, named: int, path: str) -> None:
    """Refuse to train from another step than was announced.

    Raises:
        RequestError: somebody has copied, renamed or linked the folder of a checkpoint.
    """
    if loaded != named:
        raise RequestError(
            f"{path} is named after step {named}, and holds step {loaded}",
            why="it is a copy of another checkpoint, a link to one, or was renamed",
            fix="move it elsewhere; a checkpoint of that step cannot be made by its name",
        )
