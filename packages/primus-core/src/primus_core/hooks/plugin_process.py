"""The process of one hook plugin: loads it, and calls its hooks as the supervisor says. Only here is pluggy imported.

    python -m primus_core.hooks.plugin_process SUPERVISOR_PID file|module TARGET

Requests come as JSON lines on stdin and answers go to stdout; before the plugin is loaded both are moved away, so that
what it reads is empty, and what it prints goes with stderr to `logs/hooks.log`. It ends with the supervisor, whatever
becomes of that, and ends what the hooks have started.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import inspect
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pluggy

from primus_core.hooks import console, specs
from primus_core.hooks.data import HOOKS, FailureInfo, HangInfo, Ranks, Result, RunInfo, StopRun
from primus_core.hooks.files import problem
from primus_machine import processes
from primus_machine.errors import ConfigError, PrimusError
from primus_machine.files import own_code

__all__ = ["main"]

_LEFTOVER_GRACE_S = 0.5


def _by_rank(**pids: int) -> Ranks:
    """JSON has no numbers as keys."""
    return {int(rank): pid for rank, pid in pids.items()}


def _hang(silent_s: float, ranks: Mapping[str, int]) -> HangInfo:
    return HangInfo(silent_s, _by_rank(**ranks))


_TYPES: Mapping[str, Callable[..., Any]] = {
    "run": RunInfo,
    "failure": FailureInfo,
    "result": Result,
    "hang": _hang,
    "ranks": _by_rank,
}


def main(argv: Sequence[str]) -> int:
    """Serve one plugin until the supervisor says that it is enough."""
    supervisor, kind, target = argv
    requests, answers = _own_pipes()
    _end_with(int(supervisor))
    console.SHOW.set(lambda text: _answer(answers, {"show": text}))
    try:
        manager = _manager(_plugin(kind, target))
    except (Exception, SystemExit) as error:  # what a plugin's import may do
        _answer(answers, {"broken": _reason(error, target)})
        return 1
    _answer(answers, {"ready": [hook for hook in HOOKS if getattr(manager.hook, hook).get_hookimpls()]})
    run: RunInfo | None = None
    for request in _lines(requests):
        if "run" in request:
            run = RunInfo(**{**request["run"], "command": tuple(request["run"]["command"])})
        elif "end" in request:
            _answer(answers, {"left": [processes.command_of(pid) for pid in processes.leftovers()]})
            return 0
        else:
            _answer(answers, {"id": request["id"], **_called(manager, request["hook"], run, request["data"])})
    return 0  # end of file: the supervisor is gone


def _own_pipes() -> tuple[int, int]:
    """The protocol's two pipes, out of the plugin's way and not inherited by what it starts."""
    requests, answers = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # always a TextIOWrapper here
    return requests, answers


def _end_with(supervisor: int) -> None:
    """Leave nothing behind: at the end, at SIGHUP, and when the supervisor dies, which is a SIGTERM from then on."""
    processes.become_subreaper()
    atexit.register(processes.end_all, _LEFTOVER_GRACE_S)  # registered first: runs behind what the plugin registers
    signal.signal(signal.SIGHUP, _terminated)
    # Slurm sends what ends a step to each of its processes; hooks hear of that end all the same.
    signal.signal(signal.SIGTERM, lambda *_: os.getppid() == supervisor or _terminated())
    signal.signal(signal.SIGINT, lambda *_: None)
    processes.end_with_parent()
    if os.getppid() != supervisor:  # it died before the line above
        os._exit(0)
    faulthandler.enable()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # srun's warning of a time limit: what the ranks do with it counts
    faulthandler.register(signal.SIGUSR2)  # before a hook is cut off: where it hangs


def _terminated(*_: object) -> NoReturn:
    processes.end_all(_LEFTOVER_GRACE_S)
    os._exit(128 + signal.SIGTERM)


def _plugin(kind: str, target: str) -> object:
    if kind == "file":
        return own_code.module(target)
    module, _, attribute = target.partition(":")
    value: Any = importlib.import_module(module)
    for part in attribute.split(".") if attribute else ():
        value = getattr(value, part)
    return value() if isinstance(value, type) else value


def _manager(plugin: object) -> pluggy.PluginManager:
    manager = pluggy.PluginManager("primus")
    manager.add_hookspecs(specs)
    _check(manager, plugin)
    manager.register(plugin)
    manager.check_pending()
    return manager


def _check(manager: pluggy.PluginManager, plugin: object) -> None:
    """What pluggy refuses, too, with the place and a suggestion."""
    found = False
    for name in dir(plugin):
        if (options := manager.parse_hookimpl_opts(plugin, name)) is None:
            continue
        found = True
        function = getattr(plugin, name)
        if wrong := problem(name, options.get("specname") or name, _needed(function)):
            what, why, fix = wrong
            code = inspect.unwrap(function).__code__
            where = f"{os.path.relpath(code.co_filename)}:{code.co_firstlineno}"
            raise ConfigError(what, where=where, why=why, fix=fix)
    if not found:
        raise ConfigError("it defines no hook", fix="mark a function with `@hookimpl` of primus_core")


def _needed(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds and p.default is p.empty]


def _reason(error: BaseException, target: str) -> dict[str, str]:
    if isinstance(error, PrimusError):
        return {"what": error.what, "why": error.why, "fix": error.fix}
    traceback.print_exception(error)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == target]
    place = f" ({os.path.relpath(target)}:{lines[-1]})" if lines else ""
    return {"what": "it cannot be loaded", "why": f"{type(error).__name__}: {error}{place}", "fix": ""}


def _called(manager: pluggy.PluginManager, hook: str, run: RunInfo | None, data: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {name: _TYPES[name](**value) if name in _TYPES else value for name, value in data.items()}
    try:
        getattr(manager.hook, hook)(run=run, **arguments)
    except (Exception, SystemExit) as error:  # whatever a hook raises must be named, and end nothing
        if isinstance(error, StopRun):
            return {"stop": str(error), "exit_code": error.exit_code}
        traceback.print_exception(error)
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def _lines(descriptor: int) -> Iterator[dict[str, Any]]:
    with open(descriptor, "rb") as pipe:
        for line in pipe:
            yield json.loads(line)


def _answer(descriptor: int, message: Mapping[str, Any]) -> None:
    data = f"{json.dumps(message)}\n".encode()
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except BrokenPipeError:  # the supervisor is gone; so will be this process
        pass


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
