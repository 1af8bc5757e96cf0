"""`primus logs RUN`: what the ranks of a run have printed, and what they print next."""

from __future__ import annotations

import glob
import os
import re
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence

from primus_core.arguments import Parser, parse_segment
from primus_core.errors import RequestError
from primus_core.host import HostRoot
from primus_core.runs.listing import resolve
from primus_core.runs.saved import GOING, state

__all__ = ["parser", "run"]

_WORKSPACE = "output"
_POLL_S = 0.3
_PIECE = 1 << 20
_EPILOG = """examples:
  primus logs latest --follow
  primus logs quickstart --rank 3
  primus logs quickstart --rank 0-3,7 --follow
  primus logs quickstart --launch

RUN is a path, a run's name, an experiment's name (its newest run), or `latest`."""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus logs", epilog=_EPILOG, description="Show what the ranks of a run print.")
    parser.add_argument("run", metavar="RUN", help="a path, a run's or an experiment's name, or latest")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rank", type=_ranks, default=(0,), metavar="N|N-M,...", help="global ranks (default: 0)")
    which.add_argument("--launch", action="store_true", help="what hooks, preparation and the launcher print, instead")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run has ended")
    parser.add_argument("--workspace", metavar="DIR", help=f"where runs are kept (default: {_WORKSPACE})")
    return parser


def _ranks(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", part.strip())
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ArgumentTypeError(f"'{text}' is no list of ranks: write 3, or 0-3,7")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(dict.fromkeys(found))


def run(words: Sequence[str]) -> int:
    """Print the logs."""
    args = parse_segment(parser(), words)
    host = HostRoot()
    directory = resolve(args.run, args.workspace or _WORKSPACE, host)
    tails = _launch(directory) if args.launch else _of_ranks(directory, args.rank, wait=args.follow)
    while True:
        going = args.follow and state(directory, host) in GOING  # asked first: what comes after it is read once more
        said = [tail.show() for tail in tails]
        if not going and not any(said):
            break
        sys.stdout.flush()
        if going and not any(said):
            time.sleep(_POLL_S)
    return 0


def _launch(directory: str) -> list[_Tail]:
    paths = sorted(glob.glob(f"{glob.escape(directory)}/logs/launch.log"))
    paths += sorted(glob.glob(f"{glob.escape(directory)}/nodes/*/logs/launch.log"))
    names = [os.path.relpath(path, directory) for path in paths]
    return [_Tail(path, f"[{name}] " if len(paths) > 1 else "") for path, name in zip(paths, names, strict=True)]


def _of_ranks(directory: str, ranks: Sequence[int], *, wait: bool) -> list[_Tail]:
    tails = [_Tail(f"{directory}/logs/rank_{rank}.log", f"[rank{rank}] " if len(ranks) > 1 else "") for rank in ranks]
    missing = [rank for rank, tail in zip(ranks, tails, strict=True) if not os.path.exists(tail.path)]
    if missing and not wait:
        known = sorted(_known_ranks(directory))
        has = f"it has {_spans(known)}" if known else "no rank of it has begun"
        raise RequestError(
            f"there is no log of rank {missing[0]} in {directory}", why=has, fix="name one of them, or see --launch"
        )
    return tails


def _known_ranks(directory: str) -> Iterator[int]:
    for name in os.listdir(f"{directory}/logs") if os.path.isdir(f"{directory}/logs") else ():
        if match := re.fullmatch(r"rank_([0-9]+)\.log", name):
            yield int(match[1])


def _spans(numbers: Sequence[int]) -> str:
    """`0-3, 7`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


class _Tail:
    """A log file that may still grow, and that may not be there yet."""

    def __init__(self, path: str, prefix: str) -> None:
        self.path, self.prefix = path, prefix.encode()
        self._offset = 0

    def show(self) -> bool:
        """Print what has come; whether there was any. Of several logs whole lines, so that none breaks another's."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read(_PIECE)
        except FileNotFoundError:
            return False
        if self.prefix and (end := data.rfind(b"\n") + 1):
            data = data[:end]
        self._offset += len(data)
        sys.stdout.buffer.write(self._marked(data))
        return bool(data)

    def _marked(self, data: bytes) -> bytes:
        if not self.prefix:
            return data
        return b"".join(self.prefix + line for line in data.splitlines(keepends=True))
