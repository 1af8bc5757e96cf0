"""Which earlier run a training resumes, or takes its weights from: `--continue`, `--from` and `--new`.

A run may be named by its experiment or by a path through the link `<workspace>/<exp_name>`. Both mean the newest run
before the one that starts now, although the link points at that one as soon as it has a directory.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from primus_core.errors import RequestError
from primus_core.plan.plan import RunPlace
from primus_core.request.arguments import Parser
from primus_core.runs.lookup import LATEST, begun, meant, resolve
from primus_core.runs.names import parse_name
from primus_machine.host import HostRoot

__all__ = ["CONTINUE", "FROM", "NEW", "AskedRun", "LinkedPaths", "add_which_run", "earlier_runs", "repeated_words"]

CONTINUE, FROM, NEW = "--continue", "--from", "--new"
_NEWEST = ""
"""The value of `--continue` without a name."""
_STEP = re.compile(r"(.+)@(\d+)", re.DOTALL)


class _Names:
    """What may stand behind `--continue`: not a setting, not the stage, and not an experiment's file."""

    def __init__(self, parser: Parser) -> None:
        self.parser = parser

    def __contains__(self, word: object) -> bool:
        return (
            isinstance(word, str)
            and not ("=" in word or word.startswith("-") or word.endswith((".yaml", ".yml", ".toml")))
            and word not in self.parser.first_words
        )

    def __iter__(self) -> Iterator[str]:
        return iter(())


def add_which_run(parser: Parser) -> None:
    """Add the options that choose an earlier run."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        CONTINUE, nargs="?", const=_NEWEST, dest="always", choices=_Names(parser), metavar="RUN[@STEP]",
        help="resume the newest run of the experiment, or RUN, from its newest checkpoint, or that of STEP; also with "
        "changed settings, and after it completed",
    )  # fmt: skip
    which.add_argument(
        FROM, dest="weights", metavar="RUN[@STEP]",
        help="start from the first step with the weights of RUN's newest checkpoint, or that of STEP",
    )  # fmt: skip
    which.add_argument(NEW, dest="anew", action="store_true", help="start from the first step; continue no earlier run")


def repeated_words(args: argparse.Namespace) -> list[str]:
    """Return the options as they were typed."""
    if args.anew:
        return [NEW]
    if args.weights is not None:
        return [FROM, args.weights]
    return [] if args.always is None else [f"{CONTINUE}={args.always}" if args.always else CONTINUE]


class AskedRun(NamedTuple):
    """What the person decided about earlier runs."""

    option: str = ""
    """`--continue`, `--from`, `--new`, or empty: nothing."""
    run: str = ""
    """The directory of the run; empty: none is named."""
    step: int | None = None
    """The step of the checkpoint; None: the newest."""

    @classmethod
    def of(cls, args: argparse.Namespace, place: RunPlace, host: HostRoot) -> AskedRun:
        """Read the options.

        Raises:
            RequestError: they name a run that does not exist.
        """
        if getattr(args, "anew", False):
            return cls(NEW)
        name, weights = getattr(args, "always", None), getattr(args, "weights", None)
        if weights is None and not isinstance(name, str):
            return cls()
        option, named = (CONTINUE, name) if isinstance(name, str) else (FROM, str(weights))
        match = _STEP.fullmatch(named)
        named, step = (match[1], int(match[2])) if match else (named, None)
        if not named:
            return cls(option, "", step)
        return cls(option, cls._run_named(named, place, host), step)

    @classmethod
    def _run_named(cls, named: str, place: RunPlace, host: HostRoot) -> str:
        """Return the directory of the run: not the one that starts, nor that of a launch that ended before it began."""
        linked, workspace = LinkedPaths(place, host.cwd()), os.path.dirname(place.directory)
        path = os.path.join(host.cwd(), linked.followed(named))
        around = os.path.dirname(os.path.dirname(path))
        if os.path.isdir(path) and parse_name(os.path.basename(around)):
            what = f"{named} is a checkpoint, not a run"
            raise RequestError(what, fix=f"name its run, and its step behind an @: {around}@STEP")
        is_own = named == os.path.basename(place.link) and linked.newest
        found = linked.newest if is_own else resolve(linked.followed(named), workspace, host)
        runs = meant(named, found)
        if named != LATEST and found == linked.newest and runs != [found]:
            runs = [*earlier_runs(place)]
        runs = [run for run in runs if run != place.directory]
        return begun(runs, host) or next(iter(runs), found)


def earlier_runs(place: RunPlace) -> Iterator[str]:
    """The directories of the experiment's runs before the one at `place`, newest first."""
    if not place.link:
        return
    root, exp_name = os.path.split(place.link)
    own = parse_name(os.path.basename(place.directory))
    try:
        names = {entry: parsed for entry in os.listdir(root) if (parsed := parse_name(entry))}
    except OSError:
        return
    for entry, name in sorted(names.items(), key=lambda named: named[1].order, reverse=True):
        # A job that is put back into the queue has runs after it, too.
        if name.exp_name == exp_name and name != own and (not own or name.order <= own.order):
            yield os.path.join(root, entry)


class LinkedPaths:
    """Paths through links to the newest run of an experiment, as the run that starts at `place` means them."""

    def __init__(self, place: RunPlace, cwd: str) -> None:
        self.place, self.cwd = place, cwd

    @property
    def newest(self) -> str:
        """The newest run of the experiment before this one; empty: there is none."""
        return next(iter(earlier_runs(self.place)), "")

    def followed(self, path: str) -> str:
        """`path`, with the run in place of such a link."""
        if "/" not in path or "://" in path:
            return path
        whole = os.path.normpath(os.path.join(self.cwd, os.path.expanduser(path)))
        link, rest = whole, ""
        while link != "/":
            if run := self._target(link):
                return os.path.join(run, rest) if rest else run
            link, name = os.path.split(link)
            rest = os.path.join(name, rest) if rest else name
        return path

    def _target(self, link: str) -> str:
        """The run that `link` leads to; empty: it is no such link."""
        if not os.path.islink(link):
            return ""
        target = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
        if not parse_name(os.path.basename(target)) or parse_name(os.path.basename(link)):
            return ""
        return self.newest if target == self.place.directory else target

    def in_settings(self, settings: Any) -> Any:
        """The same settings, with such paths followed."""
        if isinstance(settings, dict):
            return {name: self.in_settings(value) for name, value in settings.items()}
        if isinstance(settings, list):
            return [self.in_settings(value) for value in settings]
        return self.followed(settings) if isinstance(settings, str) else settings
