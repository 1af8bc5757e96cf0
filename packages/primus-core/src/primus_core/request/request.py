"""The command line as plain data: split on `--` before anything is parsed.

    primus [global] <runtime> [options] -- [<runtime> [options] --] <task> [options]

No argument library understands segments, so this comes first; each segment then gets a parser of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from primus_machine.errors import RequestError

__all__ = ["Layer", "Request", "config_of", "global_words", "no_task", "parse"]

_GLOBAL = ("--config", "--debug", "--dry-run", "--help", "--version")
_ALIKE = 0.7
"""How alike a name must be to one that is known: `inspect` is no misspelt `direct`."""


class Layer(NamedTuple):
    """One runtime with its options, not yet parsed. `segment` counts from 1."""

    runtime: str
    words: tuple[str, ...]
    segment: int = 1


class Request(NamedTuple):
    """What the person asked for, nothing decided. `task` keeps every word, further `--` included."""

    layers: tuple[Layer, ...]
    task: tuple[str, ...]
    dry_run: bool = False
    debug: bool = False
    config: str = ""
    """A further layer of the system config: a file."""
    replay: str = ""
    """A run directory whose run is wanted again."""
    check: bool = False
    """Only say whether the replay could be the same run."""
    force: bool = False
    """Replay it all the same."""
    trust: bool = False
    """Believe the run that is replayed, whoever wrote it."""

    @property
    def task_segment(self) -> int:
        """The task's segment, counted from 1."""
        return len(self.layers) + 1


def parse(words: Sequence[str], runtimes: Collection[str], tasks: Collection[str]) -> Request:
    """The request in `words` (without `primus`).

    Raises:
        RequestError: an empty segment, an unknown runtime or task, or no task at all.
    """
    rest = list(words)
    flags, config = _global(rest)
    layers: list[Layer] = []
    while True:
        end = rest.index("--") if "--" in rest else len(rest)
        if not end:
            raise _nothing(layers, tasks, dashes=bool(rest))
        if rest[0] not in runtimes:
            _require_task(rest, layers, runtimes, tasks)
            return Request(tuple(layers), tuple(rest), "--dry-run" in flags, "--debug" in flags, config)
        layers.append(Layer(rest[0], tuple(rest[1:end]), len(layers) + 1))
        if end == len(rest):
            return Request(tuple(layers), (), "--dry-run" in flags, "--debug" in flags, config)
        rest = rest[end + 1 :]


def config_of(words: Sequence[str]) -> str:
    """The file that the global `--config` names, or nothing."""
    return _global(list(words))[1]


def global_words(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The global options at the front of `words`, and the rest."""
    rest = list(words)
    _global(rest)
    return tuple(words[: len(words) - len(rest)]), tuple(rest)


def _global(rest: list[str]) -> tuple[set[str], str]:
    """Take the global options from the front of `rest`: the switches, and the file of `--config`."""
    flags, config = set(), ""
    while rest and rest[0].partition("=")[0] in ("--dry-run", "--debug", "--config"):
        flag, equals, value = rest.pop(0).partition("=")
        if flag != "--config":
            flags.add(flag)
            continue
        config = value if equals else rest.pop(0) if rest else ""
        if not config:
            raise RequestError("--config needs a file", fix="primus --config site.yaml direct -- ...")
    return flags, config


def no_task(layers: Sequence[Layer], tasks: Collection[str]) -> RequestError:
    """The error for a command that ends in a runtime."""
    import shlex

    from primus_machine.secrets.redaction import redact_words

    typed = " -- ".join(shlex.join(redact_words([layer.runtime, *layer.words])) for layer in layers)
    return RequestError(
        f"`primus {typed}` needs a task",
        why="nothing follows the runtime's options",
        fix=f"`primus {typed} -- <task>`; tasks: {', '.join(tasks)}",
    )


def _nothing(layers: Sequence[Layer], tasks: Collection[str], *, dashes: bool) -> RequestError:
    if layers:
        what = f"segment {len(layers) + 1} is empty: nothing follows the `--`"
        return RequestError(what, fix=f"name a task there: {', '.join(sorted(tasks))}")
    why = "the command begins with `--`" if dashes else "no runtime follows"
    return RequestError(f"segment 1 is empty: {why}", fix="begin with a runtime: primus direct -- ...")


def _require_task(
    rest: Sequence[str], layers: Sequence[Layer], runtimes: Collection[str], tasks: Collection[str]
) -> None:
    head, segment = rest[0], f"segment {len(layers) + 1}"
    if head in tasks and layers:
        return
    if head in tasks:
        import shlex

        what = f"'{head}' is a task, and a task needs a runtime"
        raise RequestError(what, fix=f"primus direct -- {shlex.join(rest)}")
    if head == "--version":
        raise RequestError("--version takes no further words", fix="primus --version")
    from primus_core.request import former

    if head.startswith("-"):
        what = f"{segment} begins with '{head}'" if layers else f"'{head}' is not an option of primus itself"
        near = former.Answer() if layers else former.answer("primus", head, _GLOBAL)
        raise RequestError(
            what,
            why="a segment begins with a runtime or a task",
            fix=near.fix or "see `primus --help`",
            kind="option first" if layers else "",
        )
    kind, known = ("task", sorted(tasks)) if layers else ("runtime", sorted(runtimes))
    near = former.answer("primus", head, [*runtimes, *tasks], _ALIKE)
    raise RequestError(
        f"{segment}: no {kind} is called '{head}'",
        why=f"known: {', '.join(known) or 'none'}",
        fix=near.fix or "see `primus --help`, and `primus plugins` for what is installed",
        kind=f"unknown {kind}",
        options=[head],
        meant=near.meant,
    )
