"""torchrun, which is told to end once: `python -m primus_core.programs.torchrun WORDS`, with torchrun's own words.

Slurm signals every process of a step, and Primus passes the signal on. A second one would end torchrun while it waits
for its ranks, and with it the store in which these agree on the step that they save.
"""

from __future__ import annotations

from importlib import import_module
from types import FrameType
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Run it; of the signals that end it, only the first one counts."""
    api: Any = import_module("torch.distributed.elastic.multiprocessing.api")
    end, told = api._terminate_process_handler, list[int]()  # noqa: SLF001  # torch has no other way to it

    def once(number: int, frame: FrameType | None) -> None:
        told.append(number)
        if len(told) == 1:
            end(number, frame)

    api._terminate_process_handler = once  # noqa: SLF001
    try:
        import_module("torch.distributed.run").main()
    except api.SignalException:
        raise SystemExit(128 + told[0]) from None  # an order is no error, and needs no traceback


if __name__ == "__main__":
    main()
