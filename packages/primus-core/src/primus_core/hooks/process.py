"""One hook plugin's process, as the supervisor sees it: what was asked, what is owed, and how to be rid of it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from primus_core.hooks.data import AFTER_THE_END, RunInfo, Stop
from primus_core.plan.plan import HookPlugin
from primus_machine.files import plain_json
from primus_machine.pipes import Channel
from primus_machine.processes import descendants, signals_to_reset
from primus_machine.secrets.masks import Mask

__all__ = ["LOAD_LIMIT_S", "HookProcess"]

LOAD_LIMIT_S = 60.0
"""A plugin may import much, from a network file system that is busy with every other node's start."""
_QUEUE = 4096
"""Events that a plugin may be behind: hours of steps, a few megabytes."""
_LAST_WORDS_S = 0.2


class _Owed(NamedTuple):
    number: int
    hook: str


class HookProcess:
    """The process of `plugin`. Nothing here waits, except for a process that has been killed."""

    def __init__(
        self,
        plugin: HookPlugin,
        run: RunInfo,
        environ: Mapping[str, str],
        *,
        mask: Mask,
        log: Callable[[str, bytes], None],
        say: Callable[[str], None],
    ) -> None:
        self.plugin, self._say, self._log = plugin, say, log
        self.hooks: frozenset[str] | None = None
        """The hooks that the plugin has; None while it is loading."""
        self.broken: Mapping[str, str] | None = None
        """Why it could not be loaded: `what`, `why`, `fix`."""
        self.reported = False
        """Whether the person knows that it is broken."""
        self.alive = True
        self.stop: Stop | None = None
        """Whether it asks for the run's end, and why."""
        self._dropped = 0
        self.failures: Counter[tuple[str, str]] = Counter()
        self._owed: deque[_Owed] = deque()
        self._unsent = bytearray()
        self._unread = b""
        self._count = 0
        self.pid, self._requests, self.answers, self.output = _spawn(plugin, environ)
        self._since = time.monotonic()
        self._channel = Channel(self.output, mask, lambda data, _: log(plugin.source, data))
        self._send({"run": run._asdict()})

    # Asking.

    def takes(self, hook: str) -> bool:
        """Whether a call of `hook` would reach anything."""
        return self.alive and not self.broken and (self.hooks is None or hook in self.hooks)

    def ask(self, hook: str, data: Mapping[str, Any]) -> int:
        """Queue a call; its number, for `waits_for`."""
        if not self._owed:
            self._since = time.monotonic()
        self._count += 1
        self._owed.append(_Owed(self._count, hook))
        self._send({"id": self._count, "hook": hook, "data": data})
        return self._count

    def post(self, hook: str, data: Mapping[str, Any]) -> None:
        """Queue a call that may be dropped, where the plugin is too far behind."""
        if len(self._owed) < _QUEUE:
            self.ask(hook, data)
        else:
            self._dropped += 1

    def missed(self) -> int:
        """Events that were dropped, or that it had not come to when it ended."""
        return self._dropped + len(self._owed)

    def waits_for(self, number: int) -> bool:
        """Whether the call of that number has not been answered, and may yet be."""
        return self.alive and any(owed.number == number for owed in self._owed)

    def end(self) -> None:
        """Tell it that this was all."""
        self._send({"end": True})

    def _send(self, message: Mapping[str, Any]) -> None:
        self._unsent += f"{plain_json.dumps(message, default=str)}\n".encode()
        self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._requests, self._unsent)]
        except BlockingIOError:  # it is behind; the rest goes another time
            pass
        except BrokenPipeError:  # it has ended; the answers' end of file says so next
            self._unsent.clear()

    # Listening.

    def poll(self, limit_s: float) -> None:
        """Take what has come, and cut off a hook that takes too long."""
        if not self.alive:
            return
        code = self._reap(0.0)  # before reading: all that it had to say is in the pipes then
        if not self._drain() or code is not None:
            self._ended(code)
        elif self.hooks is None and not self.broken and self._age() > LOAD_LIMIT_S:
            self.cut_off(f"the hooks of {self.plugin.source} took longer than {LOAD_LIMIT_S:g} s to load")
        elif self.hooks is not None and self._owed and self._age() > limit_s:
            self.cut_off(self._overdue(limit_s))

    def late(self, limit_s: float) -> None:
        """Cut it off: an answer that is waited for did not come in time."""
        behind = f"{self.plugin.source} was {len(self._owed) - 1} events behind at {self._owed[-1].hook}"
        self.cut_off(self._overdue(limit_s) if len(self._owed) == 1 else f"{behind}, did not catch up in {limit_s:g} s")

    def _overdue(self, limit_s: float) -> str:
        return f"hook {self._owed[0].hook} of {self.plugin.source} took longer than {limit_s:g} s"

    def _age(self) -> float:
        return time.monotonic() - self._since

    def _drain(self) -> bool:
        """Pass on what waits, both ways. False: there will be no more answers."""
        self._flush()
        more = self._read()
        self._listen()
        return more

    def _listen(self) -> None:
        for _ in range(64):  # a plugin that prints without end must not keep the supervisor here
            if not self._channel.read():
                break

    def _read(self) -> bool:
        """Take the answers that are there. False: there will be no more."""
        while True:
            try:
                data = os.read(self.answers, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            answer = json.loads(line)
            if not isinstance(answer, dict):
                raise TypeError
        except (ValueError, TypeError):  # what the interpreter's start-up files print, before the pipe is moved away
            self._log(self.plugin.source, line + b"\n")
            return
        if "show" in answer:
            self._say(str(answer["show"]))
            return
        self._since = time.monotonic()
        if "ready" in answer:
            self.hooks = frozenset(answer["ready"])
        elif "broken" in answer:
            self.broken = answer["broken"]
        elif "left" in answer:
            for command in answer["left"]:
                self._say(f"note: the hooks of {self.plugin.source} left '{command}' running; it was ended with them")
        elif self._owed:
            hook = self._owed.popleft().hook
            if "stop" in answer:
                self._stopped(hook, answer)
            if error := answer.get("error"):
                self._failed(hook, error)

    def _stopped(self, hook: str, answer: Mapping[str, Any]) -> None:
        """It asks for the end of the run; if the run is over, this is only a note."""
        reason = answer["stop"] or "no reason given"
        if hook in AFTER_THE_END:
            self._say(f"note: StopRun in {hook} of {self.plugin.source} is ignored because the run has ended: {reason}")
        elif not self.stop:
            self.stop = Stop(f"{reason} ({hook} of {self.plugin.source})", int(answer["exit_code"]))

    def _failed(self, hook: str, error: str) -> None:
        """Say it once for each kind: a hook that fails at every step would fill the console."""
        kind = (hook, error.partition(":")[0])
        self.failures[kind] += 1
        if self.failures[kind] == 1:
            self._say(f"hook {hook} of {self.plugin.source} failed: {error}")

    # Ending.

    def _ended(self, code: int | None) -> None:
        """It ended by itself (None: it has only closed its pipe)."""
        if code is None and (code := self._reap(1.0)) is None:
            self.kill()
        self._close()
        if self.broken:
            return
        name = f"by {signal.Signals(-code).name}" if code and code < 0 else f"with exit code {code or 0}"
        during = f" in {self._owed[0].hook}" if self._owed else ""
        self._say(f"the hooks of {self.plugin.source} ended {name}{during}; they get no further events")
        self._owed.clear()

    def cut_off(self, why: str) -> None:
        """End it now, and say why. Where it hangs goes to the log."""
        self._say(f"{why} and was killed; it gets no further events")
        _send(self.pid, signal.SIGUSR2)
        deadline = time.monotonic() + _LAST_WORDS_S
        while time.monotonic() < deadline:
            self._listen()
            time.sleep(0.02)
        self.kill()
        self._owed.clear()  # reported already

    def kill(self) -> None:
        """End it and everything that it has started, without a word."""
        _send(self.pid, signal.SIGSTOP)  # so that it starts nothing while the others end
        for pid in descendants(self.pid):
            _send(pid, signal.SIGKILL)
        _send(self.pid, signal.SIGKILL)
        self._reap(5.0)
        self._close()

    def terminate(self) -> None:
        """Ask it to end, what it has started included."""
        _send(self.pid, signal.SIGHUP)

    def has_ended(self) -> bool:
        """Whether it has ended, as requested; then it is removed."""
        if self.alive:
            code = self._reap(0.0)
            self._drain()
            if code is not None:
                self._close()
        return not self.alive

    def _reap(self, seconds: float) -> int | None:
        """Its exit code (-n for signal n); None: it still runs after so many seconds."""
        deadline = time.monotonic() + seconds
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            while os.waitid(os.P_PID, self.pid, options) is None:
                if time.monotonic() >= deadline:
                    return None
                time.sleep(0.01)
            os.killpg(self.pid, signal.SIGKILL)  # what it may have left; until it is reaped, the number is its own
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except (ChildProcessError, ProcessLookupError):  # somebody else reaped it
            return 0

    def _close(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self._channel.finish()
        for descriptor in (self._requests, self.answers, self.output):
            os.close(descriptor)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _spawn(plugin: HookPlugin, environ: Mapping[str, str]) -> tuple[int, int, int, int]:
    """Start the process, in a session of its own so that Ctrl-C is not for it: its pid, and our ends of its pipes."""
    theirs, requests = os.pipe()
    answers, theirs_answers = os.pipe()
    output, theirs_output = os.pipe()
    kind = "file" if plugin.is_file else "module"
    argv = [sys.executable, "-m", "primus_core.hooks.plugin_process", str(os.getpid()), kind, plugin.target]
    actions = [(os.POSIX_SPAWN_DUP2, end, i) for i, end in enumerate((theirs, theirs_answers, theirs_output))]
    try:
        reset = signals_to_reset()
        pid = os.posix_spawn(argv[0], argv, dict(environ), file_actions=actions, setsid=True, setsigdef=reset)
    finally:
        for descriptor in (theirs, theirs_answers, theirs_output):
            os.close(descriptor)
    for descriptor in (requests, answers, output):
        os.set_blocking(descriptor, False)
    return pid, requests, answers, output
