"""The supervisor's side of the Python Hook API: one process for each plugin, called at the moments of a run.

A hook that hangs, crashes or leaks does so in its own process; the run continues.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from primus_core.hooks.data import HOOKS, RunInfo, Stop
from primus_core.hooks.process import HookProcess
from primus_core.plan.plan import HookPlugin
from primus_machine.errors import ConfigError
from primus_machine.files.atomic import open_to_append
from primus_machine.secrets.masks import Mask

__all__ = ["HookProcesses"]

_END_GRACE_S = 5.0
_TERM_GRACE_S = 1.0
_WAIT_MS = 100
_KEPT = 1 << 20


class HookProcesses:
    """The hook plugins of one run, each in its process, from before the launch until after its end."""

    def __init__(
        self,
        plugins: Iterable[HookPlugin],
        run: RunInfo,
        *,
        timeout_s: float,
        environ: Mapping[str, str],
        say: Callable[[str], None],
        log: str,
        mask: Mask,
        interruptions: Callable[[], int] = lambda: 0,
    ) -> None:
        """Start them; they load beside what the supervisor does next.

        Args:
            plugins: from `Catalogue.hook_plugins`.
            run: the data that every hook gets.
            timeout_s: the most that a hook may take for one call.
            environ: the plugins' environment, whole.
            say: shows a line to the person (it ends in a newline).
            log: the file that gets what hooks print. Its folder may be made later.
            mask: hides secrets in both.
            interruptions: how many signals the person has sent; when it grows, `call` waits no longer.
        """
        self._limit, self._show, self._mask, self._interruptions = timeout_s, say, mask, interruptions
        self._log = _Log(log)
        self._processes = [
            HookProcess(plugin, run, environ, mask=mask, log=self._log.put, say=self._say) for plugin in plugins
        ]

    def ready(self) -> None:
        """Wait until every plugin is loaded. A broken package is a note; a person's own broken file is an error.

        Raises:
            ConfigError: a file cannot be loaded, or has a hook that does not exist. All processes have ended.
        """
        seen = self._interruptions()
        while any(p.alive and p.hooks is None and not p.broken for p in self._processes):
            self._wait()
            if self._interruptions() > seen:
                return
        for process in self._processes:
            if process.broken and not process.reported:
                process.reported = True
                self._refuse(process.plugin, process.broken)

    def _refuse(self, plugin: HookPlugin, broken: Mapping[str, str]) -> None:
        what, why, fix = self._masked(broken["what"]), self._masked(broken["why"]), broken["fix"]
        if not plugin.is_file:
            self._say(f"note: the hooks of {plugin.source} are skipped: {what}{f': {why}' if why else ''}")
            return
        self.close()
        raise ConfigError(f"the hooks of {plugin.source} cannot be used: {what}", why=why, fix=fix)

    def call(self, name: str, **data: Any) -> Stop | None:
        """Call a hook of every plugin and wait for all, each at most the limit: whether one asks for the run's end."""
        self.ready()
        answered, seen = self.asked(name, **data), self._interruptions()
        while not answered() and self._interruptions() == seen:
            self._wait()
        return self.stop if name == "before_launch" else None

    def asked(self, name: str, **data: Any) -> Callable[[], bool]:
        """Call a hook of every plugin; a function that says, without waiting, whether all have answered. Who takes
        longer than the limit is cut off.
        """
        _require(name, data)
        plain = {key: _plain(value) for key, value in data.items()}
        asked = [(process, process.ask(name, plain)) for process in self._processes if process.takes(name)]
        deadline = time.monotonic() + self._limit

        def answered() -> bool:
            waiting = [process for process, number in asked if process.waits_for(number)]
            for process in waiting if time.monotonic() > deadline else ():
                process.late(self._limit)
            return not any(process.waits_for(number) for process, number in asked)

        return answered

    @property
    def stop(self) -> Stop | None:
        """Whether a hook has asked for the run's end."""
        return next((process.stop for process in self._processes if process.stop), None)

    def post(self, name: str, **data: Any) -> None:
        """Call a hook of every plugin and do not wait. A plugin that is thousands of events behind misses it."""
        _require(name, data)
        plain = {key: _plain(value) for key, value in data.items()}
        for process in self._processes:
            if process.takes(name):
                process.post(name, plain)

    def poll(self) -> None:
        """Take answers and output, and cut off what is over its limit. To be called a few times a second."""
        for process in self._processes:
            process.poll(self._limit)

    def descriptors(self) -> list[int]:
        """What to wait for between two `poll`, for whoever wants to be quicker than a few times a second."""
        return [end for p in self._processes if p.alive for end in (p.answers, p.output)]

    def pids(self) -> list[int]:
        """The processes that run: not to be ended with what the launch has started."""
        return [process.pid for process in self._processes if process.alive]

    def close(self) -> None:
        """End them all: a word, some seconds, SIGTERM, SIGKILL. Then say what was missed."""
        for process in self._alive():
            process.end()
        self._await_end(_END_GRACE_S)
        for process in self._alive():
            self._say(f"note: the hooks of {process.plugin.source} did not end in {_END_GRACE_S:g} s and were ended")
            process.terminate()
        self._await_end(_TERM_GRACE_S)
        for process in self._alive():
            process.kill()
        for process in self._processes:
            self._summarize(process)
        self._processes.clear()

    def _alive(self) -> list[HookProcess]:
        return [process for process in self._processes if process.alive]

    def _await_end(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and [p for p in self._processes if not p.has_ended()]:
            time.sleep(0.01)

    def _summarize(self, process: HookProcess) -> None:
        source, missed = process.plugin.source, process.missed()
        for (hook, kind), count in process.failures.items():
            if count > 1:
                self._say(f"note: hook {hook} of {source} failed {count} times with {kind}")
        if missed:
            self._say(f"note: the hooks of {source} were too slow: they missed {missed} events")

    def _wait(self) -> None:
        ready = select.poll()
        for descriptor in self.descriptors():
            ready.register(descriptor, select.POLLIN)
        ready.poll(_WAIT_MS)
        self.poll()

    def _masked(self, text: str) -> str:
        return self._mask(text.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")

    def _say(self, text: str) -> None:
        self._show(f"primus: {self._masked(text)}\n")


def _require(name: str, data: Mapping[str, Any]) -> None:
    assert {"run", *data} == set(HOOKS[name]), f"{name} takes {HOOKS[name]}, not {sorted(data)}"


def _plain(value: Any) -> Any:
    """JSON values: the named tuples of `hook_data` as mappings."""
    return value._asdict() if hasattr(value, "_asdict") else value


class _Log:
    """`logs/hooks.log`: what comes before its folder is there waits, and a full disk ends nothing."""

    def __init__(self, path: str) -> None:
        self._path, self._kept = path, b""

    def put(self, source: str, data: bytes) -> None:
        """Add lines, each behind the plugin that printed it."""
        prefix = f"[{source}] ".encode()
        self._kept += b"".join(prefix + line.rstrip(b"\n") + b"\n" for line in data.splitlines(keepends=True))
        try:
            with open(open_to_append(self._path), "ab") as file:
                file.write(self._kept)
        except OSError:
            self._kept = self._kept[-_KEPT:]
        else:
            self._kept = b""
