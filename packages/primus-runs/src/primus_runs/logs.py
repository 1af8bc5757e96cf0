"""Show the logs of a run, and follow them."""

from __future__ import annotations

import glob
import os
import re
import select
import shlex
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from primus_core.contracts import schedulers
from primus_core.errors import RequestError
from primus_core.request.arguments import Parser, parse_segment
from primus_core.runs.lookup import resolve, workspace
from primus_core.runs.state import GOING, state
from primus_machine.files import trust
from primus_machine.files.atomic import regular
from primus_machine.files.capped_log import parts
from primus_machine.host import HostRoot
from primus_runs.status import RunStatus, status_of

__all__ = ["parser", "run"]

_POLL_S = 0.3
_ASK_S = (1.0, 10.0)
"""The first pause between two questions to a scheduler, and the longest."""
_PIECE = 1 << 20
_HEAD = 100
"""Of the first line of a file, so much tells it from the one before."""
_EPILOG = """examples:
  primus logs latest --follow
  primus logs quickstart --rank 3
  primus logs quickstart --rank 0-3,7 --follow
  primus logs quickstart --launch

RUN is a path, a run's name, an experiment's name or a job's number (its newest run), or `latest`."""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus logs", epilog=_EPILOG, description="Show the logs of a run.")
    parser.add_argument("run", metavar="RUN", help="a path, the name of a run or experiment, or latest")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--rank", type=_ranks, default=(0,), metavar="N|N-M,...", help="show these global ranks (default: 0)"
    )
    which.add_argument("--launch", action="store_true", help="show the output of hooks, preparation, launcher and job")
    parser.add_argument("-f", "--follow", action="store_true", help="follow the log until the run ends")
    parser.add_argument(
        "--workspace", metavar="DIR", help="the folder of the runs (default: from primus.yaml, or output)"
    )
    return parser


def _ranks(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", part.strip())
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ArgumentTypeError(f"'{text}' is not a list of ranks; write for example 3 or 0-3,7")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(dict.fromkeys(found))


def run(words: Sequence[str], layer: str) -> int:
    """Print the logs."""
    args = parse_segment(parser(), words)
    host = HostRoot()
    directory = resolve(args.run, workspace(args.workspace, host, layer), host)
    logs = _Launch(directory) if args.launch else _Ranks(directory, args.rank)
    if not args.follow:
        logs.require(host)
    run = _Run(directory, host)
    silent = True
    while True:
        going = args.follow and run.is_running()  # asked first: what comes after it is read once more
        shown = [tail.show() for tail in logs.tails()]
        silent = silent and not any(shown)
        if not going and not any(shown):
            break
        sys.stdout.flush()
        if going and not any(shown):
            _pause()
    if args.follow and silent:  # else a run that ended before its ranks began would say nothing at all
        logs.require(host)
    if silent:
        sys.stderr.write(f"primus: note: the {'launch' if args.launch else 'rank'} has printed nothing\n")
    return 0


def _pause() -> None:
    """Wait a moment, unless nobody reads any more: a silent run would keep us here."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    poll.poll(int(_POLL_S * 1000))
    if poll.poll(0):
        raise BrokenPipeError


class _Run:
    """Whether the run goes on, as far as it says so itself, and where it does not, its scheduler."""

    def __init__(self, directory: str, host: HostRoot) -> None:
        self.directory, self.host = directory, host
        self.stands: RunStatus | None = None
        self.status, self.pause_s, self.ask_at = "", _ASK_S[0], 0.0
        self.waits_for = ""

    def is_running(self) -> bool:
        status = state(self.directory, self.host)
        if status in ("running", "completed"):
            return status == "running"
        now = time.monotonic()
        if now >= self.ask_at or status != self.status or not self.stands:
            self.stands = status_of(self.directory, self.host)
            self.pause_s = (
                min(self.pause_s * 1.5, _ASK_S[1]) if status in GOING and status == self.status else _ASK_S[0]
            )
            self.status, self.ask_at = status, now + self.pause_s
            self._say_it_waits(self.stands)
        stands, known, job = self.stands
        # A job whose run has failed may be put back into the queue before it has gone.
        return stands in GOING or bool(job and job.is_running and known.submitted)

    def _say_it_waits(self, stands: RunStatus) -> None:
        what = _what_for(stands)
        if self.waits_for == what or stands.state not in ("pending", "submitted"):
            return
        self.waits_for = what
        sys.stderr.write(f"primus: waiting for {what}; Ctrl-C stops this command, not the run\n")
        sys.stderr.flush()


def _what_for(stands: RunStatus) -> str:
    """What a run that has not begun waits for."""
    job = stands.job
    if not job:
        name = f"job {stands.known.job_id}" if stands.known.job_id else "its job"
        return f"{name}: it was submitted; {schedulers.title_of(stands.known)} does not report its status here"
    return f"job {job.number}: {stands.state}" + (f" ({job.reason})" if job.reason else "")


class _Launch:
    """The logs of hooks, preparation and the launcher, on every node, and that of the job. More may come."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.found: dict[str, _Tail] = {}

    def tails(self) -> Iterable[_Tail]:
        base = glob.escape(self.directory)
        of_jobs = [scheduler.logs for scheduler in schedulers.all_of_them()]
        for pattern in (*of_jobs, "logs/launch.log", "nodes/*/logs/launch.log"):
            for path in sorted(glob.glob(f"{base}/{pattern}")):
                self.found.setdefault(path, _Tail(path))
        for path, tail in self.found.items():
            name = os.path.relpath(path, self.directory)
            tail.prefix = f"[{name}] ".encode() if len(self.found) > 1 else b""
        return self.found.values()

    def require(self, host: HostRoot) -> None:
        """Nothing: a run may have had nothing to say there."""


class _Ranks:
    """The logs of some ranks. With `--log-limit` they come to further files."""

    def __init__(self, directory: str, ranks: Sequence[int]) -> None:
        self.directory, self.several = directory, len(ranks) > 1
        self.logs = {rank: f"{directory}/logs/rank_{rank}.log" for rank in ranks}
        self.found: dict[str, _Tail] = {}

    def tails(self) -> Iterable[_Tail]:
        """In the order in which they were written: what is left of one comes before the next."""
        for rank, log in self.logs.items():
            for path in (files := parts(log)):
                if path not in self.found:
                    self.found[path] = _Tail(path, f"[rank{rank}] " if self.several else "", begins=path != log)
                yield (tail := self.found[path])
                while tail.has_more and path != files[-1]:
                    yield tail

    def require(self, host: HostRoot) -> None:
        """Refuse a rank without a log."""
        missing = [rank for rank, log in self.logs.items() if not os.path.exists(log)]
        if not missing:
            return
        known, stands = sorted(_known_ranks(self.directory)), status_of(self.directory, host)
        why = f"it has {_spans(known)}" if known else "no rank has started"
        fix = f"primus logs {shlex.quote(self.directory)} --rank {known[0]}" if known else _why_it_ended(self.directory)
        if not known and stands.state == "unwatched":
            why, fix = "it was started from the script of a dry run", "what it printed is on that console alone"
        if not known and stands.state in ("pending", "submitted"):
            why, fix = f"{why}: {_what_for(stands)}", "wait for them with --follow"
        raise RequestError(f"there is no log of rank {missing[0]} in {self.directory}", why=why, fix=fix)


def _why_it_ended(directory: str) -> str:
    return f"primus runs show {shlex.quote(directory)}"


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


_CONTROL = re.compile(rb"(?!\x1b\[[0-9;]*m)[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")
"""What a terminal obeys, other than lines, tabs and colours."""


def _spelt_out(match: re.Match[bytes]) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in match[0])


class _Tail:
    """A log file that may still grow, and that may not be there yet."""

    def __init__(self, path: str, prefix: str = "", *, begins: bool = False) -> None:
        """`begins`: its first line is another one each time that it begins again."""
        self.path, self.prefix, self.begins = path, prefix.encode(), begins
        self.has_more = False
        self._head = b""
        self._offset = 0
        self._skipped = False
        self._uids = trust.of(HostRoot().environ).uids

    def _skip(self, error: OSError) -> None:
        if not self._skipped:
            self._skipped = True
            sys.stderr.write(f"primus: skipped {self.path}: {error.strerror}\n")

    def show(self) -> bool:
        """Print what has come; whether there was any. Of several logs whole lines, so that none breaks another's."""
        try:
            with open(self.path, "rb", opener=regular) as file:
                if self._begins_again(file):
                    self._offset = 0
                file.seek(self._offset)
                data = file.read(_PIECE)
                self.has_more = len(data) == _PIECE
                own = os.fstat(file.fileno()).st_uid in self._uids
        except FileNotFoundError:
            return False
        except OSError as error:
            self._skip(error)
            return False
        if self.prefix and (end := data.rfind(b"\n") + 1):
            data = data[:end]
        self._offset += len(data)
        sys.stdout.buffer.write(self._marked(data if own else _CONTROL.sub(_spelt_out, data)))
        return bool(data)

    def _begins_again(self, file: BinaryIO) -> bool:
        """Whether it was emptied: by a job that begins again, or, at the log's end, by `--log-limit`."""
        head, self._head = self._head, file.readline(_HEAD) if self.begins else b""
        other = bool(head) and not self._head.startswith(head)
        return other or os.fstat(file.fileno()).st_size < self._offset

    def _marked(self, data: bytes) -> bytes:
        if not self.prefix:
            return data
        return b"".join(self.prefix + line for line in data.splitlines(keepends=True))
