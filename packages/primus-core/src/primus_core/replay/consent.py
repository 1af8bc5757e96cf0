"""What a person is asked before a run is replayed: whether they trust it, and the secrets that no snapshot holds."""

from __future__ import annotations

import argparse
import os
import sys

from primus_core.plan.plan import Plan
from primus_core.replay.prepare import Replay
from primus_machine.errors import RequestError
from primus_machine.files import trust
from primus_machine.host import HostRoot

__all__ = ["secrets", "trusting"]


def trusting(replay: Replay, plan: Plan, switches: argparse.Namespace, host: HostRoot) -> HostRoot | None:
    """The machine as somebody sees it who trusts the run, for this command; None: nothing stands against it.

    Raises:
        RequestError: nobody says that it is to be trusted.
    """
    if switches.dry_run or switches.check:
        return None  # reading is not trusting
    directory = replay.saved.directory
    if not (why := replay.saved.doubt(trust.of(host.environ))):
        return None
    handed = os.pathsep not in directory  # else no variable can name it
    if not (handed and (switches.trust or _agrees(plan, host, f"{directory}: {why}"))):
        raise RequestError(
            f"the run {directory} is not trusted",
            why=why,
            fix=f"look at what it would run: add --dry-run; to start it: add --trust\nor {trust.fix(directory)}",
        )
    return host.with_environ(trust.with_name(host.environ, directory))


def _agrees(plan: Plan, host: HostRoot, why: str) -> bool:
    """Show what would run, and ask. A batch job has nobody to ask."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from primus_core.plan.secret_values import values_in
    from primus_core.plan.show import script
    from primus_machine.secrets.redaction import redact
    from primus_machine.text import printable

    text = redact(script(plan), values_in(plan, host.environ))
    sys.stderr.write(printable(f"{text}primus: {why}\nprimus: start this? [y/N] ", "\n\t"))
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def secrets(replay: Replay, switches: argparse.Namespace, host: HostRoot) -> HostRoot | None:
    """The machine with the secrets that no snapshot holds, asked of the person; None: nothing was asked."""
    if not replay.missing_secrets or switches.check or switches.dry_run or not sys.stdin.isatty():
        return None
    from getpass import getpass

    asked = "primus: {} is a secret that the run had. Its value: "
    return host.with_environ({**host.environ, **{name: getpass(asked.format(name)) for name in replay.missing_secrets}})
