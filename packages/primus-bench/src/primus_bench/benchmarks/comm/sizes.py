"""Sizes of messages as people write them: `1KiB:1GiB:x2`, `4KiB,1MiB`."""

from __future__ import annotations

from primus_bench.options import byte_count, series

__all__ = ["shown", "sizes"]

_EXAMPLES = "1KiB:1GiB:x2 (doubled) or 1MiB:8MiB:+1MiB (in steps)"


def sizes(text: str) -> tuple[int, ...]:
    """For `type=`: bytes, in the order in which they are named, each once.

    Raises:
        argparse.ArgumentTypeError: a part is no size and no range.
    """
    return series(text, byte_count, _EXAMPLES)


def shown(size: int) -> str:
    """The shortest exact form: `4KiB`, `1500`."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return str(size)
