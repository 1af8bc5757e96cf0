"""Which ranks have failed and do not end, or have left, while others wait for them.

A launcher looks at processes only. A rank whose exception is recorded may hang afterwards, in an exit handler or a
thread, and a rank that leaves with 0 may be one that the others wait for.
"""

from __future__ import annotations

import glob
import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from primus_core.plan.plan import METRICS, Distributed
from primus_core.plan.programs import FAILURES
from primus_machine.files import plain_json
from primus_machine.files.atomic import read_regular, write_atomically
from primus_machine.processes import ProcessTimes, descendants, times_of
from primus_machine.supervision.program import Watch

__all__ = ["LeftRank", "RankEnds"]

_LOOK_S, _NODES_S, _IDLE_LOOK_S = 0.1, 5.0, 1.0
_FAILED_S = 3.0
"""A rank that has recorded its failure has so long to end by itself."""
_MARGIN_S = 4.0
"""So much longer than the grace period the others may do nothing after a rank has left."""
_SLACK_TICKS, _TICKS_PER_S = 5, 0.01 * os.sysconf("SC_CLK_TCK")
"""A rank that uses less than 1 % of a CPU waits."""
_UNKNOWN = "ended with an unknown exit code (killed by a signal, or `os._exit`)"


@dataclass(frozen=True, slots=True)
class LeftRank:
    """A rank that ended while others were running, with 0 as far as is known."""

    rank: int
    node_rank: int
    host: str
    time: float
    logged: int
    """The bytes that `metrics.jsonl` had by then."""
    is_unknown: bool = False
    """Its process is gone, and nobody has said how it ended."""

    def describe(self, directory: str) -> str:
        """Return in words how it left."""
        try:
            lines = read_regular(f"{directory}/{METRICS}")[: self.logged].splitlines()
            step = f" after step {plain_json.loads(lines[-1].decode())['step']}" if lines else ""
        except (OSError, ValueError, TypeError, KeyError):
            step = ""
        return f"{_UNKNOWN if self.is_unknown else 'left with exit code 0'}{step}"


class RankEnds:
    """Those of one step. `shares`: its ranks on all nodes of `directory` are one job, of which none goes on alone."""

    def __init__(
        self,
        watch: Callable[[], Watch],
        directory: str,
        place: Distributed,
        host: str,
        *,
        shares: bool,
        say: Callable[[str], None],
    ) -> None:
        self._get_watch, self._directory, self._place, self._host, self._say = watch, directory, place, host, say
        self._shares = shares and place.nnodes > 1
        self._look_at = self._nodes_at = self._idle_at = 0.0
        self._pids: dict[int, int] = {}
        self._began: dict[int, int] = {}
        self.running: dict[int, ProcessTimes] = {}
        self._gone: set[int] = set()
        self._failed: dict[int, float] = {}
        self._left: dict[int, LeftRank] = {}
        self._elsewhere: dict[int, LeftRank] = {}
        self._idle_since, self._idle_used = 0.0, dict[int, int]()
        self._is_over = False
        self.waited_s = 0.0
        """For how long the others had waited when they were ended for it; 0: they were not."""

    @property
    def left(self) -> list[LeftRank]:
        """Return the ranks that have left, the first one first."""
        # A launcher that ended by itself would have said of a signal.
        own = [one if self._is_over else replace(one, is_unknown=False) for one in self._left.values()]
        return sorted([*own, *self._elsewhere.values()], key=lambda one: one.time)

    def cannot_continue(self) -> bool:
        """Return whether the ranks are to be ended. Called several times a second."""
        now = time.monotonic()
        if not self._is_over and now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._is_over = self._look(now)
        return self._is_over

    def _look(self, now: float) -> bool:
        ends = self._get_watch().ends()
        for rank, has_failed in ends.items():
            if has_failed:
                self._failed.setdefault(rank, now)
            else:
                self._leave(rank)
        self._find_gone(ends)
        if self._shares and now >= self._nodes_at:
            self._nodes_at = now + _NODES_S
            self._hear()
        return self._has_stuck(now) or self._hangs_in_block(now) or self._others_wait(now)

    def _find_gone(self, ends: Mapping[int, bool]) -> None:
        """Find the ranks whose processes have ended, and which of them left by themselves."""
        watch = self._get_watch()
        if len(self._pids) < self._place.gpus_per_node:
            self._pids |= watch.pids()
        self.running = {}
        gone = []
        for rank, pid in self._pids.items():
            times = None if rank in self._gone else times_of(pid)
            if times and times.began == self._began.setdefault(rank, times.began):
                self.running[rank] = times
            elif rank not in self._gone:
                gone.append(rank)
        self._gone.update(gone)
        # The launcher ends the others once it has seen the process of a failed one end, not before.
        is_quiet = not any(rank in self._gone for rank in self._failed)
        for rank in (rank for rank in gone if rank not in ends and is_quiet):
            self._leave(rank, is_unknown=True)

    def _leave(self, rank: int, *, is_unknown: bool = False) -> None:
        if rank not in self._left:
            at = time.time(), self._logged()
            self._left[rank] = LeftRank(rank, self._place.node_rank, self._host, *at, is_unknown)
            if self._shares and not self._failed and len(self._left) == 1:
                self.tell_nodes(self._left[rank])  # at once: their ranks fail a moment later

    def _has_stuck(self, now: float) -> bool:
        stuck = [rank for rank, at in self._failed.items() if rank in self.running and now > at + _FAILED_S]
        if stuck:
            self._tell(f"rank {stuck[0]} has failed and does not end by itself")
        return bool(stuck)

    def _hangs_in_block(self, now: float) -> bool:
        """Whether a rank has raised, and does nothing in a `finally:` or `with` block, for long enough.

        It may as well save there, or clean up, and somebody may catch what it has raised.
        """
        pending = self._get_watch().pending() & self.running.keys()
        if not pending or self._failed or self._waited(now, pending) < self._get_watch().grace_s + _MARGIN_S:
            return False
        self._tell(f"rank {min(pending)} has raised an exception and hangs in a `finally:` or `with` block")
        return True

    def _others_wait(self, now: float) -> bool:
        """Whether ranks that are left behind have neither printed nor computed anything for long enough."""
        behind = self.running.keys() - self._left.keys()
        if self._failed or not behind or not (left := self.left):
            return False
        waited = self._waited(now, behind)
        if waited < self._get_watch().grace_s + _MARGIN_S:
            return False
        self.waited_s = waited
        self._tell(f"rank {left[0].rank} {left[0].describe(self._directory)}, and the others waited for {waited:.0f} s")
        return True

    def _waited(self, now: float, ranks: Collection[int]) -> float:
        """Return for how long these ranks have neither printed nor computed anything."""
        if now < self._idle_at:
            return 0.0
        self._idle_at = now + _IDLE_LOOK_S
        if not self._idle_since or set(ranks) != self._idle_used.keys() or self._is_busy(now, ranks):
            self._idle_since, self._idle_used = now, {rank: self._used(rank) for rank in ranks}
        return now - self._idle_since

    def _is_busy(self, now: float, ranks: Collection[int]) -> bool:
        since = now - self._idle_since
        if self._get_watch().silent_s() < since or any(self.running[rank].waits_for_disk for rank in ranks):
            return True
        most = _SLACK_TICKS + _TICKS_PER_S * since
        return any(self._used(rank) - self._idle_used.get(rank, 0) > most for rank in ranks)

    def _used(self, rank: int) -> int:
        """Return the CPU time of a rank and of what it has started."""
        pid = self._pids[rank]
        return sum(times.used for times in map(times_of, (pid, *descendants(pid))) if times)

    def _tell(self, what: str) -> None:
        self._say(f"primus: {what}: ending all ranks; SIGKILL in {self._get_watch().grace_s:g} s\n")

    def _logged(self) -> int:
        try:
            return os.stat(f"{self._directory}/{METRICS}").st_size
        except OSError:
            return 0

    def _hear(self) -> None:
        """Hear of ranks that have left on other nodes."""
        for path in glob.glob(f"{glob.escape(self._directory)}/{FAILURES}/left_*.json"):
            with suppress(OSError, ValueError, TypeError, KeyError):
                known = LeftRank(**plain_json.loads(read_regular(path).decode()))
                if known.node_rank != self._place.node_rank:
                    self._elsewhere[known.rank] = known

    def tell_nodes(self, left: LeftRank) -> None:
        """Write down for the other nodes that this rank has left."""
        path = f"{self._directory}/{FAILURES}/left_{left.node_rank}.json"
        with suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_atomically(path, json.dumps(asdict(left)))

    def end(self, exit_code: int, lone_rank: int | None) -> None:
        """Take in how the step ended. `lone_rank`: the rank that its process was, without a launcher between."""
        if self._shares and lone_rank is not None and not exit_code:
            self.tell_nodes(LeftRank(lone_rank, self._place.node_rank, self._host, time.time(), self._logged()))
        elif self._shares and exit_code:
            self._hear()
