"""The command line: `primus`. It imports only what the words in hand need; `--help` and `--version` import nothing.

primus [global] <runtime> [options] -- <task> [task options]
primus plugins | completion
"""

import errno
import os
import sys
from io import TextIOWrapper

TYPE_CHECKING = False  # a type checker's name; `typing` and `__future__` are modules that --version need not load
if TYPE_CHECKING:
    from primus_machine.errors import RequestError

__all__ = ["main"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Why a disk, or a terminal that has gone, takes no more."""


def main(argv: list[str] | None = None) -> int:
    """Run the command; its exit code: 0, the task's own, 2 wrong request, 3 this machine cannot."""
    words = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    code = 0
    try:
        code = _main(words)
        sys.stdout.flush()  # here, where a reader that has gone is no surprise; at exit it would be a message
    except KeyboardInterrupt:
        sys.stderr.write("primus: interrupted\n")
        return 130
    except BrokenPipeError:  # the reader (`| head`) has gone
        _print_no_more()
        return 141
    except Exception as error:  # the last place: what is ours becomes a message, the rest is a bug
        shown = _explain(error, words)
        return code or shown  # of a run that failed, and whose last words find no space
    return code


def _open_streams() -> None:
    """A stream that was closed (`>&-`) leads nowhere, before another file gets its number. Stdout takes every text:
    the bytes that the environment and file names hold, and letters that a locale lacks.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), "w" if number else "r"))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape" if sys.stdout.encoding == "utf-8" else "backslashreplace")


def _print_no_more() -> None:
    """What is left in the buffer goes nowhere: at exit, it would be a message."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _explain(error: Exception, words: list[str]) -> int:
    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        from primus_machine.errors import as_line

        _print_no_more()
        sys.stderr.write(as_line(f"the output cannot be written\n  why: {error.strerror}"))
        return 3
    from primus_core.cli import explained

    return explained.explain(error, words, os.environ)


def _main(words: list[str]) -> int:
    if words[:1] == ["help"] and len(words) > 1:
        words = _help_of(words[1:])
    if not words or words[0] in ("-h", "--help", "help"):
        from primus_core.cli.help import overview

        sys.stdout.write(overview())
        return 0
    if words[-1:] == ["--version"] and len(words) < 3:
        from primus_machine.packages import version_of

        sys.stdout.write(f"primus {version_of('primus-core')}\n")
        return 0
    from primus_core.cli import commands

    if words[0] in commands.names():
        _hide_secrets(words, len(words))
        return _management(words[0], words[1:])
    if words[0] == "__protocol":
        return _protocol(words[1:])
    if words[0] == "__complete":
        from primus_core.cli.completion import answer

        return answer(words[1:], commands.names())
    return _request(words)


def _help_of(words: list[str]) -> list[str]:
    """Return the command that shows the help of a command, a runtime, or a task, which needs a runtime before it."""
    from primus_core.cli import commands
    from primus_machine.packages import entry_points

    runtimes = {entry.name for entry in entry_points("primus.runtimes")}
    is_whole = words[0] in {*commands.names(), *runtimes} or "--" in words
    return [*words, "--help"] if is_whole else ["direct", "--", *words, "--help"]


def _protocol(schedulers: list[str]) -> int:
    """What an outer layer asks before it starts this Primus inside: the protocol, and which schedulers are missing."""
    from primus_core.variables import PROTOCOL
    from primus_machine.packages import entry_points

    missing = {*schedulers} - {entry.name for entry in entry_points("primus.schedulers")}
    sys.stdout.write(" without ".join(map(str, (PROTOCOL, *sorted(missing)))) + "\n")
    return 0


def _management(name: str, words: list[str], layer: str = "") -> int:
    from primus_core.cli import commands
    from primus_machine.errors import expect

    return expect(commands.load(name).run(words, layer) or 0, int, f"the command '{name}'")


def _behind_globals(words: list[str]) -> "int | None":
    """`primus --config FILE config system`: a management command behind global options; None: it is none."""
    from primus_core.cli import commands
    from primus_core.request.request import config_of, global_words
    from primus_machine.errors import RequestError

    front, rest = global_words(words)
    if not rest or rest[0] not in commands.names():
        return None
    _hide_secrets(words, len(words))
    if rest[0] == "replay":
        return _management("replay", [*front, *rest[1:]], config_of(words))
    if "--dry-run" in front:
        import shlex

        raise RequestError(
            f"--dry-run needs a runtime, and '{rest[0]}' is not a runtime",
            why=f"`primus {rest[0]}` starts nothing",
            fix=f"remove it: primus {shlex.join(word for word in words if word != '--dry-run')}",
        )
    return _management(rest[0], list(rest[1:]), config_of(words))


def _request(words: list[str]) -> int:
    """Plan, and show or run it. What planning makes lives as long as the process: a search for garbage among it, here
    and at exit, takes a sixth of a dry run and finds nothing. `run_request` allows it again before anything runs.
    """
    import atexit
    import gc

    atexit.register(gc.freeze)
    gc.disable()
    try:
        return _requested(words)
    finally:
        gc.enable()


def _requested(words: list[str]) -> int:
    from primus_core.plugins.catalogue import Catalogue
    from primus_core.request import request
    from primus_machine.errors import RequestError
    from primus_machine.host import HostRoot

    if (code := _behind_globals(words)) is not None:
        return code
    host = HostRoot()
    catalogue = Catalogue.here(host, request.config_of(words))
    runtimes, tasks = catalogue.first_words("runtimes"), catalogue.first_words("tasks")
    try:
        asked = request.parse(words, runtimes, tasks)
    except RequestError as error:
        _hint(words, runtimes, tasks, error)
        if broken := catalogue.broken("tasks"):
            error.fix = f"{error.fix}; tasks may be missing: `primus plugins` shows why {broken} cannot be loaded"
        raise
    if {"-h", "--help"} & {*asked.task, *(word for layer in asked.layers for word in layer.words)}:
        from primus_core.cli import help as helps

        if text := helps.of_request(asked, catalogue):
            sys.stdout.write(text)
            return 0
    _hide_secrets(words, len(words) - len(asked.task))
    from primus_core.planning.run_request import run_request

    try:
        return run_request(asked, host, catalogue, ("primus", *words))
    except RequestError as error:
        _hint(words, runtimes, tasks, error)
        raise


_ENV_FLAGS = ("--env", "-e")


def _hide_secrets(words: list[str], end: int) -> None:
    """Begin again without secret values in the process list. The words from `end` on are the task's own."""
    if any(word.startswith(_ENV_FLAGS) for word in words[:end]):
        from primus_core.cli import process_list

        process_list.hide_secrets(words, end, os.environ)


def _hint(words: list[str], runtimes: "set[str]", tasks: "set[str]", refused: "RequestError") -> None:
    """Where a command line is refused and what was meant is known: raise the error that tells it."""
    from primus_core.cli import commands, hints
    from primus_core.request.request import global_words

    front, rest = global_words(words)
    if hint := hints.instead(rest, hints.Known(runtimes, tasks, commands.names(), front), refused):
        raise hint from None


if __name__ == "__main__":
    raise SystemExit(main())
