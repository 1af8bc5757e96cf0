"""The checks that are here, of all packages, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from primus_core.errors import MachineError, RequestError, nearest
from primus_core.plugins.catalogue import Catalogue, Plugin
from primus_preflight.checks.check import LEVELS, Check, Level

__all__ = ["chosen", "gather", "refuse_unknown"]


def gather(catalogue: Catalogue) -> tuple[Check, ...]:
    """The checks of all packages.

    Raises:
        MachineError: some cannot be loaded, or two have one name: nothing may pass by not being asked.
    """
    found: dict[str, str] = {}
    checks: list[Check] = []
    for plugin in catalogue.of("checks"):
        for check in _brought(plugin):
            if check.name in found:
                both = f"{found[check.name]} and {plugin.source}"
                fix = "uninstall or rename one of them"
                raise MachineError(f"two checks are called '{check.name}'", why=both, fix=fix)
            found[check.name] = plugin.source
            checks.append(check)
    return tuple(sorted(checks, key=_order))


def _brought(plugin: Plugin) -> tuple[Check, ...]:
    make = plugin.load()
    try:
        found = tuple(make())
    except Exception as error:  # it may be anybody's
        why = f"{type(error).__name__}: {error}"
    else:
        strangers = [one for one in found if not isinstance(one, Check)]
        if not strangers:
            return found
        why = f"{strangers[0]!r} is not a Check"
    fix = "correct it: it is a function that returns a tuple of checks; or uninstall it"
    raise MachineError(f"'{plugin.name}' of {plugin.source} does not return checks", why=why, fix=fix)


def _order(check: Check) -> tuple[int, str]:
    """Our groups in their order, then others; within one as its author has it."""
    groups = ("host", "gpu", "network")
    return (groups.index(check.group), "") if check.group in groups else (len(groups), check.group)


def refuse_unknown(
    checks: Sequence[Check], only: Sequence[str], skip: Sequence[str], *, elsewhere: bool = False
) -> None:
    """Refuse a pattern that matches nothing; `elsewhere`, where there may be further checks, one that is misspelt.

    Raises:
        RequestError: there is one.
    """
    for option, pattern in [("--only", one) for one in only] + [("--skip", one) for one in skip]:
        if any(fnmatchcase(check.name, pattern) for check in checks):
            continue
        near = nearest(pattern, (check.name for check in checks))
        if near or not elsewhere:
            fix = f"did you mean '{near}'?" if near else "`primus direct -- preflight list` lists the checks"
            what, named = f"{option} {pattern}: no check has this name", [pattern]
            raise RequestError(what, fix=fix, kind="unknown", options=named, meant=near or None)


def chosen(
    checks: Sequence[Check], groups: Iterable[str], level: Level, only: Sequence[str] = (), skip: Sequence[str] = ()
) -> tuple[Check, ...]:
    """Those of the groups (none: all) up to a level, whose names match a pattern of `only` and none of `skip`.

    Raises:
        RequestError: a pattern matches nothing, or nothing is left.
    """
    refuse_unknown(checks, only, skip)
    wanted, affordable = set(groups), LEVELS[: LEVELS.index(level) + 1]
    left = tuple(
        check
        for check in checks
        if (check.group in wanted or not wanted)
        and check.level in affordable
        and (not only or any(fnmatchcase(check.name, one) for one in only))
        and not any(fnmatchcase(check.name, one) for one in skip)
    )
    if not left:
        raise RequestError(
            "no check is left",
            why="the groups, --level, --only and --skip select no check",
            fix="primus direct -- preflight list",
        )
    return left
