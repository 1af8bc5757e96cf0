"""The keeper: a small process between the supervisor and what it starts, so that nothing outlives them.

    primus (supervisor) ── keeper ── torchrun ── ranks ── their children

Keeper and supervisor are both "child subreapers": whichever of them dies, every orphan falls to the other, which
ends it. The keeper has a session of its own, so that a terminal's Ctrl-C and `kill -9 %1` reach the supervisor only.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import time
from collections.abc import Collection, Mapping, Sequence

from primus_machine.processes import (
    become_subreaper,
    blocks_signal,
    command_of,
    descendants,
    end_all,
    ignored_signals,
    leftovers,
    parent_of,
    reap,
    send,
    signals_to_reset,
)

__all__ = ["COMMANDS", "WARNINGS", "clean_up", "keep"]

WARNINGS = (signal.SIGUSR1, signal.SIGUSR2)
"""With these a scheduler says that the job's time ends soon."""

COMMANDS = {
    signal.SIGINT: b"I",
    signal.SIGTERM: b"T",
    signal.SIGHUP: b"T",
    signal.SIGQUIT: b"T",
    signal.SIGKILL: b"K",
    **dict.fromkeys(WARNINGS, b"T"),
}
"""What the supervisor writes to the keeper for a signal."""
_SIGNALS = {ord("I"): signal.SIGINT, ord("T"): signal.SIGTERM}
_LEFTOVER_GRACE_S = 1.0
_STATUS_BYTES = 2000
_CLEANUP_S = 20.0


def keep(
    argv: Sequence[str],
    environ: Mapping[str, str],
    cwd: str,
    *,
    control: int,
    status: int,
    output: int,
    errors: int,
    folder: str,
    whole_group: bool,
    grace_s: float,
    cleanup: Sequence[str] = (),
    stop: Sequence[str] = (),
    names_left: bool = False,
    ignored: Collection[int] = (),
) -> None:
    """The keeper's life, in the forked process. Never returns.

    It reads commands from `control`, starts `argv` with stdout on `output` and stderr on `errors`, and writes to
    `status` the wait status as a number, or `!` and the reason when the program cannot be started; with `names_left`,
    also a line for each process that was left running. Once the supervisor is dead, `argv` gets SIGTERM, `grace_s`
    seconds, and SIGKILL; and `folder`, the ranks' pipes, is removed. Signals go to `argv`'s process, or to its
    `whole_group`: a bash that waits for a program takes no SIGINT that the program did not get, too. Where there is
    `stop`, that runs in the place of the first signal. `cleanup` runs at the end, unless all went well. Whatever is
    started ignores the signals `ignored`, unless it handles them itself, which a shell cannot.
    """
    os.setsid()
    become_subreaper()
    wakeup, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGCHLD, *COMMANDS.keys() - {signal.SIGKILL} - ignored_signals()):
        signal.signal(number, lambda *_: None)
    try:
        os.chdir(cwd)
        child = _spawn(argv, environ, output, errors)
    except OSError as error:
        os.write(status, f"!{error.strerror}: {argv[0]}".encode())
        os._exit(127)
    os.close(output)
    os.close(errors)
    target = _Target(-child if whole_group else child, stop, environ)
    result = _watch(child, target, control, wakeup, grace_s)
    if target.asked and not target.killed:
        _linger(control)
    left = [] if target.asked or not names_left else [command_of(pid) for pid in leftovers()]
    end_all(_LEFTOVER_GRACE_S)
    if cleanup and result:
        clean_up(cleanup, environ)
    try:
        os.write(status, "\n".join((str(result), *left))[:_STATUS_BYTES].encode())
    except BrokenPipeError:  # the supervisor is gone: nobody wants to know
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def clean_up(argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Run a step's `cleanup`, in silence: there may be nothing left to take away."""
    if not _start_quietly(argv, environ):
        return
    deadline = time.monotonic() + _CLEANUP_S
    while descendants(os.getpid()) and time.monotonic() < deadline:
        reap()
        time.sleep(0.02)
    end_all(0.1)


def _start_quietly(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """The pid; 0: the program has gone, and with it what it could do."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, null, stream) for stream in range(3)]
        return os.posix_spawnp(argv[0], list(argv), dict(environ), file_actions=actions, setsid=True)
    except OSError:
        return 0
    finally:
        os.close(null)


def _spawn(argv: Sequence[str], environ: Mapping[str, str], output: int, errors: int) -> int:
    null = os.open(os.devnull, os.O_RDONLY)
    actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, errors, 2)]
    return os.posix_spawnp(
        argv[0], list(argv), dict(environ), file_actions=actions, setpgroup=0, setsigdef=signals_to_reset()
    )


class _Target:
    """What gets the signals: a process or group; or `stop` runs, and they follow only where it fails."""

    def __init__(self, pid: int, stop: Sequence[str], environ: Mapping[str, str]) -> None:
        self.pid, self.stop, self.environ = pid, stop, environ
        self.stopper, self.number = 0, 0
        self.asked = False
        """Whether it was told to end."""
        self.killed = False
        """Whether everything was. What goes on is frozen, in a paused container: nobody can wait for that."""

    def send(self, number: int) -> None:
        self.asked = True
        if not self.stop:
            send(self.pid, number)
        elif not self.stopper:
            self.number = number
            self.stopper = _start_quietly(self.stop, self.environ)
            self.look({} if self.stopper else {0: 1})

    def look(self, ended: Mapping[int, int]) -> None:
        """See in what has `ended` whether `stop` could do nothing."""
        if self.number and ended.get(self.stopper):
            send(self.pid, self.number)
            self.number = 0


def _watch(child: int, target: _Target, control: int, wakeup: int, grace_s: float) -> int:
    """The child's wait status, once it has ended; commands and signals go to `target` until then."""
    deadline = float("inf")
    waiting = [control, wakeup]
    ended: dict[int, int] = {}
    while child not in ended:
        ready, _, _ = select.select(waiting, [], [], max(0.0, min(deadline - time.monotonic(), 3600.0)))
        if time.monotonic() >= deadline:
            ended |= end_all(0.1)
        if control in ready:
            if not (commands := os.read(control, 64)):  # end of file: the supervisor is dead
                waiting.remove(control)
                deadline = time.monotonic() + grace_s
                commands = b"T"
            _obey(commands, target)
        if wakeup in ready:
            for number in os.read(wakeup, 64):
                if number in (signal.SIGTERM, signal.SIGINT):
                    target.send(number)
        ended |= reap()
        target.look(ended)
    return ended[child]


def _linger(control: int) -> None:
    """Wait for ranks that tidy up, as long as they may: a launcher that gets a second signal ends before they do.

    A scheduler signals every process of a job by itself, and so the launcher twice.
    """
    for pid in descendants(os.getpid()):
        send(pid, signal.SIGTERM)
    while below := descendants(os.getpid()):
        for pid in below:
            # The child of a rank blocks SIGTERM, and would outlive the rank.
            if parent_of(pid) == os.getpid() and blocks_signal(pid, signal.SIGTERM):
                send(pid, signal.SIGKILL)
        if select.select([control], [], [], 0.05)[0]:
            commands = os.read(control, 64)
            if not commands:  # the supervisor is dead
                return
            if ord("K") in commands:
                _obey(b"K", _Target(0, (), {}))
                return
        reap()


def _obey(commands: bytes, target: _Target) -> None:
    for command in commands:
        if command == ord("K"):
            target.killed = True
            for pid in descendants(os.getpid()):
                send(pid, signal.SIGKILL)
        else:
            target.send(_SIGNALS[command])
