"""What programs that measure one device have in common: how they begin, and how they say what they know.

Each is a process of its own, since a device may hang (`processes`). It prints JSON lines, each as soon as it is known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from primus_machine.files import plain_json
from primus_machine.units import counted
from primus_preflight.checks import processes

__all__ = ["run", "say"]


def run(
    parser: argparse.ArgumentParser, words: Sequence[str], measure: Callable[[argparse.Namespace, Any], None]
) -> int:
    """`measure` what the words say on the device of torch that they name, or say why that cannot be."""
    parser.add_argument("--device", required=True, metavar="cuda:N", help="as torch calls it, ROCm's too; or cpu")
    parser.add_argument("--parent", type=int, default=0, metavar="PID", help="end when this process does")
    args = parser.parse_args(words)
    if args.parent:
        processes.end_with(args.parent)
    try:
        import torch
    except (ImportError, OSError) as error:
        return say(cannot=f"torch cannot be imported: {error}")
    say(stage="loaded", torch=torch.__version__)
    kind, _, index = args.device.partition(":")
    if kind == "cuda" and int(index) >= torch.cuda.device_count():
        return say(cannot=f"torch {torch.__version__} sees {counted(torch.cuda.device_count(), 'GPU')}")
    measure(args, torch.device(args.device))
    return 0


def say(**values: object) -> int:
    """A line. That a device cannot be measured is no fault of its: 0."""
    print(plain_json.dumps(values), flush=True)
    return 0
