"""Remembers which checkpoints could not be loaded, so that the next attempt takes the one before.

A file may be as long as it was and have other content. Its checkpoint then fails at each start again, so the first
failure leaves a mark in it. A mark counts for the same experiment alone, since another model or another optimizer may
have been the reason, and only until the checkpoint is written anew.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from primus_core.errors import PrimusError, RequestError, TrainingError
from primus_core.journal import summary
from primus_core.journal.events import CHECKPOINT_SAVED, read_events
from primus_core.outcome.continuing import last_finite
from primus_core.plan.plan import EXPERIMENT, METRICS
from primus_machine.files import plain_json
from primus_machine.files.atomic import regular, write_atomically

__all__ = ["MARK", "FailedLoads"]

MARK = "primus_failed_to_load.json"
"""In the folder of a checkpoint."""
_OF_MACHINE = ("OutOfMemoryError", "DistError")
"""Classes of torch whose errors say nothing of a checkpoint: too little memory, and a rank or a network that failed."""
_SAID_OF_MACHINE = re.compile(
    r"RESOURCE_EXHAUSTED|UNAVAILABLE|DEADLINE_EXCEEDED|Connection (?:closed|reset|refused)|gloo"
)
"""What errors without a class of their own say then: those of JAX, and of gloo."""
_OTHER_TRAINING = re.compile(
    r"(?i)(?:size|shape) mismatch|not compatible with the stored shape|do(?:es)? not match"
    r"|(?:missing|unexpected) keys?\b|is not equal to the (?:input )?argument value"
)
"""What torch, Megatron and Orbax say of a checkpoint that is intact, and holds another model or another state."""
_REASON_CHARS = 200
_DIVERGED = "leads to a loss that is not finite"


class FailedLoads:
    """Those of one experiment, whose text `experiment` returns."""

    def __init__(self, experiment: Callable[[], str]) -> None:
        self._digest = functools.cache(lambda: hashlib.sha256(experiment().encode()).hexdigest())

    @classmethod
    def of_run(cls, directory: Path) -> FailedLoads:
        """Return those of the experiment of the run in `directory`."""
        return cls(lambda: (directory / EXPERIMENT).read_text(encoding="utf-8"))

    def why(self, checkpoint: str) -> str:
        """Return why a checkpoint could not be loaded; empty: as far as is known, it can be."""
        mark = os.path.join(checkpoint, MARK)
        try:
            with open(mark, encoding="utf-8", opener=regular) as file:
                found = plain_json.loads(file.read())
            written_ns = os.stat(mark).st_mtime_ns
            is_newest = all(entry.stat().st_mtime_ns <= written_ns for entry in os.scandir(checkpoint))
        except (OSError, ValueError):
            return ""
        is_ours = isinstance(found, dict) and found.get("experiment") == self._digest()
        return str(found.get("why")) if is_ours and is_newest else ""

    def fault(self, checkpoint: str) -> str:
        """Return what is wrong with a checkpoint that is passed over, as words behind its name."""
        why = self.why(checkpoint)
        return why if why == _DIVERGED else f"could not be loaded ({why})" if why else "is incomplete"

    def left(self, checkpoints: Sequence[str]) -> list[str]:
        """Return those that have not failed; all of them where each has."""
        return [path for path in checkpoints if not self.why(path)] or list(checkpoints)

    @contextmanager
    def watched(self, *checkpoints: str) -> Iterator[None]:
        """Say what is wrong if loading fails within the block, and mark the checkpoint.

        `checkpoints`: where it is, and where it came from.

        Raises:
            RequestError: it is of another model, or has another state than the settings need.
            TrainingError: it cannot be loaded.
        """
        try:
            yield
        except BaseException as error:  # as torch's CheckpointException is one
            if not checkpoints or any(map(_is_of_machine, causes := _causes(error))):
                raise
            _show(error, causes[-1])
            if _OTHER_TRAINING.search(str(causes[-1])):
                raise RequestError(
                    f"the checkpoint does not fit this training: {checkpoints[-1]}",
                    why=_text(causes[-1]),
                    fix="set the model and the optimizer as they were when it was saved\n"
                    "or start from the first step: --new, without --continue or --from",
                ) from error
            for path in checkpoints:
                self._mark(path, _text(causes[-1]))
            raise TrainingError(
                f"the checkpoint cannot be loaded: {checkpoints[-1]}",
                why=_text(causes[-1]),
                fix="start it again without naming a step: it continues from the checkpoint before, if there is one\n"
                "or start from the first step: --new, without --continue or --from",
            ) from error

    def mark_diverged(self, run: str) -> None:
        """Mark the checkpoints of a run whose weights have given no finite loss: from each it would diverge again."""
        finite = last_finite(summary.stream(f"{run}/{METRICS}"))
        for event in read_events(run) if finite is not None else ():
            if event.get("event") == CHECKPOINT_SAVED and event["step"] >= finite and os.path.isdir(event["path"]):
                self._mark(event["path"], _DIVERGED)

    def _mark(self, checkpoint: str, why: str) -> None:
        text = json.dumps({"why": why, "experiment": self._digest(), "time": time.time()}, indent=1)
        with suppress(OSError):  # of somebody whose files are not written
            write_atomically(os.path.join(checkpoint, MARK), text)


def _text(error: BaseException) -> str:
    said = str(error).strip().splitlines() or [""]
    more = "".join(f" {line.strip()}" for line in said[1:2] if said[0].endswith(":"))
    return f"{type(error).__name__}: {said[0]}{more}"[:_REASON_CHARS]


def _show(error: BaseException, cause: BaseException) -> None:
    """Print where loading failed: the last cause alone, if its place is known on this rank."""
    local = cause.__traceback__
    shown = [*traceback.format_tb(local), f"{_text(cause)}\n"] if local else traceback.format_exception(error)
    sys.stderr.write("".join(shown))


def _causes(error: BaseException) -> list[BaseException]:
    """An error, what it was raised from, and what the ranks of `torch.distributed.checkpoint` raised; those last."""
    of_ranks: dict[int, Any] = getattr(error, "failures", {})
    inner = [one[0] for one in of_ranks.values() if isinstance(one, tuple)] if isinstance(of_ranks, dict) else []
    inner += [error.__cause__] if error.__cause__ else []
    return [error, *(found for one in inner for found in _causes(one))]


def _is_of_machine(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno != errno.EIO
    if isinstance(error, MemoryError | PrimusError | KeyboardInterrupt | SystemExit):
        return True
    named = any(kind.__name__ in _OF_MACHINE for kind in type(error).__mro__)
    return named or bool(_SAID_OF_MACHINE.search(str(error)))
