"""`primus replay RUN [runtime ...]`: start a run again, as it was, with the same settings, environment and scripts."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence

from primus_core.arguments import Parser, parse_segment
from primus_core.errors import MachineError
from primus_core.host import HostRoot
from primus_core.planner import Planned
from primus_core.plugins import Catalogue
from primus_core.replay_report import Report, report
from primus_core.request import Layer, Request

__all__ = ["ask_for_secrets", "check", "parser", "run"]

_EPILOG = """examples:
  primus replay output/exp_2026_11_21_134522 --check
  primus replay exp
  primus replay latest direct --env NCCL_DEBUG=INFO
  primus direct -- train pretrain --replay output/exp_2026_11_21_134522

What differs is told first. Where it could not be the same run (another GPU model, too few GPUs, a missing backend),
nothing starts and the exit code is 3."""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus replay", epilog=_EPILOG, description="Start a saved run again.")
    parser.usage = "primus replay RUN [--check] [--force] [--dry-run] [--json] [runtime [runtime options]]"
    parser.add_argument("run", metavar="RUN", help="a run directory, a run's name, or an experiment's (its newest run)")
    parser.add_argument("--check", action="store_true", help="only say what equals and what differs")
    parser.add_argument("--force", action="store_true", help="start it although it cannot be the same run")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    parser.add_argument("--json", action="store_true", help="with --check or --dry-run: as JSON")
    parser.add_argument("--assume-host", metavar="FILE", default="", help="with --check or --dry-run: on that machine")
    return parser


def run(words: Sequence[str]) -> int:
    """Plan the replay as `primus <runtime> -- <task> --replay RUN` does, and carry it out."""
    from primus_core import runs
    from primus_core.cli import carry_out

    host = HostRoot()
    catalogue = Catalogue.here(host)
    own, layer = _split(words, catalogue)
    args = parse_segment(parser(), own)
    directory = runs.resolve(args.run, catalogue.system.workspace or "output", host)
    switches = [flag for flag, on in (("--json", args.json), ("--dry-run", args.dry_run)) if on]
    switches += ["--assume-host", args.assume_host] if args.assume_host else []
    layer = layer._replace(words=(*switches, *layer.words))
    asked = Request((layer,), ("replay",), replay=directory, check=args.check, force=args.force)
    return carry_out(asked, host, catalogue, ("primus", "replay", *words))


def _split(words: Sequence[str], catalogue: Catalogue) -> tuple[Sequence[str], Layer]:
    """The words of this command, and the runtime behind them (`direct` where there is none)."""
    runtimes = catalogue.first_words("runtimes")
    first = next((index for index, word in enumerate(words) if index and word in runtimes), len(words))
    behind = words[first:]
    return words[:first], Layer(behind[0], tuple(behind[1:])) if behind else Layer("direct", ())


def ask_for_secrets(planned: Planned, host: HostRoot) -> HostRoot | None:
    """The machine with the secrets that no snapshot holds, asked of the person; None: nothing was asked."""
    names = planned.replay.missing_secrets if planned.replay else ()
    if not names or planned.switches.check or planned.switches.dry_run or not sys.stdin.isatty():
        return None
    from getpass import getpass

    given = {name: getpass(f"primus: {name} is a secret that the run had. Its value: ") for name in names}
    return dataclasses.replace(host, environ={**host.environ, **given})


def check(planned: Planned) -> int | None:
    """Say what equals and what differs; the exit code where that is all, None where the run goes on.

    Raises:
        MachineError: it cannot be the same run, and nobody said `--force`.
    """
    assert planned.replay
    switches = planned.switches
    found = report(planned.plan, planned.facts, planned.replay)
    if switches.check and switches.json:
        sys.stdout.write(json.dumps(_plain(found, planned), indent=1) + "\n")
    else:
        (sys.stdout if switches.check else sys.stderr).write(_text(found, planned))
    if switches.check:
        return 3 if found.blocking else 0
    if found.blocking and not switches.force:
        raise MachineError(
            "this cannot be the same run",
            why="\n".join(f"{row.name}: {row.before} then, {row.after} here" for row in found.blocking),
            fix="go where it can, or start it all the same with --force",
        )
    return None


def _plain(found: Report, planned: Planned) -> dict[str, object]:
    assert planned.replay
    return {
        "run": planned.replay.saved.directory,
        "replayable": not found.blocking,
        "equal": list(found.equal),
        "differences": [row._asdict() for row in found.rows],
    }


def _text(found: Report, planned: Planned) -> str:
    assert planned.replay
    known = planned.replay.saved.metadata
    step = f", step {known['last_step']}, loss {known['last_loss']:.4f}" if known.get("last_step") is not None else ""
    lines = [f"primus: replay of {planned.replay.saved.directory} ({known.get('status', 'unknown')}{step})"]
    lines.append(f"  {'equal':<9} {', '.join(found.equal) or 'nothing'}")
    for row in found.rows:
        change = f"{_short(row.before) or 'not set'} → {_short(row.after) or 'not set'}"
        lines.append(f"  {row.severity:<9} {row.category}: {row.name}: {change}")
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    line = text.replace("\n", " ")
    return line if len(line) <= 80 else line[:77] + "..."
