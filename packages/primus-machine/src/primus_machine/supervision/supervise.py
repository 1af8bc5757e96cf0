"""Starts one program, or the ranks of a node, and stays with it: its output, the signals, its end. Decides nothing.

What runs is a `Program`: a step of a plan is one.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from primus_machine.files.capped_log import CappedLog
from primus_machine.files.writer import BackgroundWriter
from primus_machine.keeper import COMMANDS, WARNINGS, clean_up, keep
from primus_machine.output.seen_lines import RankChannel, SeenLines
from primus_machine.output.silence import Silence
from primus_machine.output.streams import RankPipes, for_console
from primus_machine.pipes import Channel
from primus_machine.processes import become_subreaper, descendants, end_all, parent_of
from primus_machine.supervision.program import Ended, Program, Watch
from primus_machine.variables import STREAMS

__all__ = ["supervise"]

_FILE_BUFFER = 256 << 20
_CONSOLE_BUFFER = 16 << 20
_IDLE_S = 0.1
_LOOK_S = 0.02
_QUICK_S, _QUICK, _PAUSE_S = 0.001, 32, 0.002
_UNTOLD_S = 10.0
_WAITS = b"primus: note: this node's ranks have ended; torchrun waits for those of the other nodes, up to 5 min\n"
"""Its exit barrier: `exit_barrier_timeout` in torch/distributed/elastic/agent/server/api.py."""


def supervise(step: Program, environ: Mapping[str, str], watch: Watch) -> Ended:
    """Run `step` to its end with exactly `environ`, forwarding signals; nothing that it started is left behind."""
    become_subreaper()
    ranks = range(step.first_rank, step.first_rank + step.ranks)
    if not step.ranks:
        return _Supervisor(step, environ, watch, None).run()
    try:
        pipes = RankPipes(ranks)
    except OSError as error:  # the disk for temporary files is full
        return Ended(3, not_started=f"no pipes for its output can be made: {error.strerror}")
    watch.pids, watch.ends, watch.pending = pipes.pids, pipes.ends, pipes.pending
    try:
        ended = _Supervisor(step, {**environ, STREAMS: pipes.folder}, watch, pipes).run()
        return replace(ended, records=pipes.records())
    finally:
        pipes.close()


class _Pace:
    """Lets lines gather where they come one after the other: to wake up for each costs more than to read it.

    What comes more slowly than a line a millisecond is read at once. A pipe holds more than a rank prints in a pause.
    """

    def __init__(self) -> None:
        self._quick = 0
        self._began = self._ended = 0.0

    def begin(self) -> None:
        """There is something to read."""
        self._began = time.monotonic()
        self._quick = self._quick + 1 if self._began - self._ended < _QUICK_S else 0

    def end(self) -> None:
        """It is read."""
        if self._quick > _QUICK and time.monotonic() - self._began < _QUICK_S:
            time.sleep(_PAUSE_S)
        self._ended = time.monotonic()


class _Supervisor:
    def __init__(self, step: Program, environ: Mapping[str, str], watch: Watch, pipes: RankPipes | None) -> None:
        self.step, self.environ, self.watch, self.pipes = step, environ, watch, pipes
        self.others = frozenset(descendants(os.getpid()))  # processes of Python hooks, which outlive the step
        of_keeper = _fork_keeper(step, environ, pipes, watch)
        self.keeper, self.control, self.status, self.output, self.errors = of_keeper
        # Threads only from here on: forking a process that has some is not safe.
        self.files, self.console = BackgroundWriter(limit=_FILE_BUFFER), BackgroundWriter(limit=_CONSOLE_BUFFER)
        self.channels: dict[int, Channel] = {}
        self.logs: dict[str, CappedLog] = {}
        self.forwarded = 0
        self.kill_at, self.killed = float("inf"), False
        self.ends_at = time.monotonic() + step.timeout_s if step.timeout_s else float("inf")
        self.timed_out = self.stopped = self.cut_short = False
        self.cut_at = 0.0
        self.silence = Silence(watch.silence_s, watch.start_silence_s, watch.progress)
        watch.silent_s = self.silence.so_far_s
        self.silent_s = 0.0  # for so long, if it hangs
        self.spared = False  # it hangs, and somebody looks at it before it is ended
        self.pace = _Pace()
        self.next_look = 0.0
        self.gone = False  # the ranks, when somebody last looked
        self.tells_at = 0.0 if pipes and environ.get("NNODES", "1") != "1" else float("inf")

    def run(self) -> Ended:
        self.files.start()
        self.console.start()
        self._open_channels()
        text = self._loop()
        for channel in self.channels.values():
            channel.finish()
        self.console.close(2.0)
        if self.files.close(30.0):  # a thread that still writes keeps its descriptors
            self.watch.close()
        for descriptor in (self.control, self.status, self.output, self.errors):
            os.close(descriptor)
        return self._ended(text)

    def _open_channels(self) -> None:
        mask = self.watch.mask
        text = self._inner_text if self.watch.pass_through else self._launcher_text
        self.channels[self.output] = Channel(self.output, mask, text, self.watch.on_line)
        self.channels[self.errors] = Channel(self.errors, mask, self._launcher_text)
        seen, speaker = SeenLines(mask), SeenLines(mask, metrics=True)
        for rank, suffix, descriptor in self.pipes or ():
            known = speaker if rank == self.watch.metrics_rank else seen
            self.channels[descriptor] = self._rank_channel(rank, 1 if suffix == "out" else 2, descriptor, known)

    def _launcher_text(self, data: bytes, whole: bool) -> None:
        """A plain process is shown; torchrun's text goes to its log only, since the ranks speak for themselves."""
        if whole:
            self.files.put(self.watch.file(self.watch.launch_log), _written_over(data))
        if not self.pipes or self.watch.show_launcher:
            self._show(2, data)

    def _log(self, name: str) -> CappedLog:
        if name not in self.logs:
            self.logs[name] = CappedLog(self.files, self.watch.file, name, self.watch.log_limit)
        return self.logs[name]

    def _inner_text(self, data: bytes, whole: bool) -> None:  # the run's logs have it
        self._show(1, data)

    def _rank_channel(self, rank: int, console: int, descriptor: int, seen: SeenLines) -> RankChannel:
        log, teller = self._log(f"rank_{rank}.log"), self.watch.metrics_rank
        if rank == 0 and teller and console == 1:
            log.put(b"primus: rank %d prints the steps and their loss: rank_%d.log\n" % (teller, teller))

        def show(text: bytes) -> None:
            if self.spared:  # the stacks that it is asked for: its log has them
                return
            self._show(2 if rank else console, for_console(rank, text, teller))

        def sink(text: bytes, whole: bool) -> None:
            log.put(text)
            if rank == 0:
                show(text)

        heard = show if rank else lambda _: None
        return RankChannel(descriptor, self.watch.mask, sink, seen=seen, heard=heard)

    def _show(self, descriptor: int, data: bytes) -> None:
        if data:
            self.console.put(descriptor, data)
            if self.watch.log_file:
                self._log(self.watch.log_file).put(data)

    def _loop(self) -> bytes:
        """What the keeper reported of the end; empty: it was killed before that."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (self.status, self.watch.signals.reader, *self.channels):
                selector.register(descriptor, selectors.EVENT_READ)
            self._forward()
            while True:
                ready = [key.fd for key, _ in selector.select(_IDLE_S)]
                self.pace.begin()
                self._read(ready, selector)
                if self.watch.signals.reader in ready:
                    os.read(self.watch.signals.reader, 64)
                    self._forward()
                if not ready or time.monotonic() >= self.next_look:
                    self._periodic(idle=not ready)
                if self.status in ready:
                    return os.read(self.status, 4096)
                self.pace.end()

    def _read(self, ready: Collection[int], selector: selectors.BaseSelector) -> None:
        for descriptor in ready:
            if descriptor not in self.channels:
                continue
            self.silence.end()
            if not self.channels[descriptor].read() and descriptor in (self.output, self.errors):
                selector.unregister(descriptor)  # the launcher has closed its output

    def _periodic(self, *, idle: bool) -> None:
        if idle:
            for channel in self.channels.values():
                channel.flush()
        self.next_look = time.monotonic() + _LOOK_S
        self.watch.poll()
        if time.monotonic() > self.ends_at:
            self.ends_at, self.timed_out = float("inf"), True
            self._cut_off()
        if not self.stopped and self.watch.stops():
            self.stopped = True
            self._cut_off()
        if not (self.cut_short or self.forwarded) and self.watch.cannot_continue():
            self.cut_short = True
            self._cut_off()
        self._look_for_silence()
        if time.monotonic() > self.tells_at:
            self._tell_of_waiting()
        if time.monotonic() > self.kill_at or self.watch.gives_up():
            self.killed = True
            self._signal(signal.SIGKILL)
            self.kill_at = float("inf")

    def _look_for_silence(self) -> None:
        """Where ranks print nothing for too long, and no other node reports progress, they hang."""
        if not self.silent_s and self.silence.is_too_long():
            self.silent_s, self.spared = self.silence.limit_s, True
        if self.spared and self.watch.may_end_hung(self.silent_s):
            self.spared = False
            self._cut_off()

    def _tell_of_waiting(self) -> None:
        """Where all ranks of this node have been gone for a while, and what started them is not."""
        pids = self.pipes.pids() if self.pipes else {}
        are_gone = len(pids) == self.step.ranks and not any(map(parent_of, pids.values()))
        if are_gone and self.gone:
            self._show(2, _WAITS)
        self.tells_at = float("inf") if are_gone and self.gone else time.monotonic() + _UNTOLD_S
        self.gone = are_gone

    def _cut_off(self) -> None:
        self.cut_at = self.cut_at or time.time()
        self.kill_at = min(self.kill_at, time.monotonic() + self.watch.grace_s)
        self._signal(signal.SIGTERM)

    def _forward(self) -> None:
        """Pass on what the person sent: the first signal gently, with a deadline; a second Ctrl-C is SIGKILL."""
        signals = self.watch.signals
        if signals.first and not self.forwarded:
            self.forwarded = signals.first
            self.kill_at = time.monotonic() + self.watch.grace_s
            self.watch.on_signal(signals.first)
            self._signal(signals.first)
        elif signals.hurry:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        try:
            os.write(self.control, COMMANDS[signal.Signals(number)])
        except BrokenPipeError:  # the keeper is gone; the status pipe says so next
            pass

    def _ended(self, text: bytes) -> Ended:
        dropped = self.files.dropped
        if text.startswith(b"!"):
            os.waitpid(self.keeper, 0)
            return Ended(3, not_started=text[1:].decode(errors="replace"))
        if not text:  # the keeper was killed: what it had started is ours now
            end_all(1.0, spared=self.others)
            if self.step.cleanup:
                clean_up(self.step.cleanup, self.environ)
            code = 128 + (self.forwarded or signal.SIGKILL)
            return self._as(code, dropped)
        os.waitpid(self.keeper, 0)
        status, *left = text.decode("utf-8", "replace").split("\n")
        code = os.waitstatus_to_exitcode(int(status))
        # What runs another Primus ends as that one did; a rank that tidied up calls any end a good one.
        if self.forwarded and (code or not self.watch.pass_through):
            code = 128 + self.forwarded
        code = 128 - code if code < 0 else code
        if (self.silent_s or self.cut_short) and not code:  # it tidied up, and called it a good end
            code = 128 + signal.SIGTERM
        return self._as(code, dropped, tuple(left))

    def _as(self, code: int, dropped: int, left: tuple[str, ...] = ()) -> Ended:
        return Ended(code, signal=self.forwarded, dropped=dropped, timed_out=self.timed_out, silent_s=self.silent_s,
                     stopped=self.stopped, left=left, cut_short=self.cut_short, cut_at=self.cut_at,
                     killed=self.killed)  # fmt: skip


def _written_over(lines: bytes) -> bytes:
    """What is left of `lines` on a terminal, where a progress bar writes over itself."""
    if b"\r" not in lines:
        return lines
    return b"\n".join(line.rpartition(b"\r")[2] for line in lines.split(b"\n"))


def _fork_keeper(
    step: Program, environ: Mapping[str, str], pipes: RankPipes | None, watch: Watch
) -> tuple[int, int, int, int, int]:
    """Start the keeper: its pid, and the supervisor's ends of its control, status, stdout and stderr pipes."""
    control_read, control = os.pipe()
    status, status_write = os.pipe()
    output, output_write = os.pipe()
    errors, errors_write = os.pipe()
    for descriptor in (output, errors):
        os.set_blocking(descriptor, False)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        for descriptor in (control, status, output, errors):
            os.close(descriptor)
        try:
            keep(
                step.argv,
                environ,
                step.cwd,
                control=control_read,
                status=status_write,
                output=output_write,
                errors=errors_write,
                folder=pipes.folder if pipes else "",
                whole_group=not step.ranks,
                grace_s=watch.grace_s,
                cleanup=step.cleanup,
                stop=step.stop,
                names_left=bool(step.script),
                # srun sends them to every process of a step; a Primus inside passes them on as SIGTERM.
                ignored=() if watch.pass_through else WARNINGS,
            )
        finally:
            os._exit(127)
    for descriptor in (control_read, status_write, output_write, errors_write):
        os.close(descriptor)
    return pid, control, status, output, errors
