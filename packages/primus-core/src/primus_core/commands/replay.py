"""Start a saved run again, with the same settings, environment and scripts."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection, Iterator, Sequence

from primus_core.planning.run_request import run_request
from primus_core.plugins.catalogue import Catalogue
from primus_core.request.arguments import Parser, flags_of, parse_segment
from primus_core.request.request import Layer, Request, global_words
from primus_core.runs import lookup
from primus_machine.errors import RequestError, nearest, suggestion
from primus_machine.host import HostRoot

__all__ = ["parser", "run"]

_EPILOG = """examples:
  primus replay output/exp_2026_11_21_134522 --check
  primus replay exp
  primus replay latest direct --env NCCL_DEBUG=INFO
  primus replay exp container --image IMG
  primus direct -- train pretrain --replay output/exp_2026_11_21_134522

Primus first shows what differs. If a difference is blocking (another GPU model, too few GPUs, a missing backend),
nothing starts and the exit code is 3."""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(
        prog="primus replay",
        epilog=_EPILOG,
        description="Start a saved run again, with the same settings, environment and scripts.",
    )
    parser.usage = "primus replay RUN [options] [runtime [options] [-- runtime [options]]]"
    parser.add_argument("run", metavar="RUN", help="a run directory, or the name of a run or experiment")
    parser.add_argument("--check", action="store_true", help="only show what differs; start nothing")
    parser.add_argument("--force", action="store_true", help="start despite blocking differences")
    parser.add_argument("--trust", action="store_true", help="replay another user's run without asking")
    parser.add_argument("--dry-run", action="store_true", help="show the plan without running it")
    parser.add_argument("--json", action="store_true", help="with --check or --dry-run: print JSON")
    parser.add_argument(
        "--assume-host", metavar="FILE|GPU", default="", help="with --check or --dry-run: use a machine like this"
    )
    return parser


def run(words: Sequence[str], layer: str) -> int:
    """Plan the replay as `primus <runtime> -- <task> --replay RUN` does, and carry it out."""
    host = HostRoot()
    front, behind = global_words(words)
    if not layer and any(word.startswith("--config") for word in front):  # before `replay`, it is the system config
        raise RequestError("a replay takes no --config: it has the settings of its run", fix="remove it")
    catalogue = Catalogue.here(host, layer)
    own, layers = _split(behind, catalogue)
    _refuse_dashes(own, behind)
    args = parse_segment(parser(), own)
    workspace = catalogue.system.workspace or "output"
    directory = lookup.resolve(args.run, workspace, host, has_begun=True)
    if (newest := lookup.resolve(args.run, workspace, host)) != directory:
        passed = f"{os.path.basename(newest)} ended before it began, and is passed over"
        sys.stderr.write(f"primus: replays {os.path.basename(directory)}: {passed}\n")
    switches = [flag for flag, on in (("--json", args.json), ("--dry-run", args.dry_run or "--dry-run" in front)) if on]
    switches += ["--assume-host", args.assume_host] if args.assume_host else []
    first = layers[0]._replace(words=(*switches, *layers[0].words))
    asked = Request(
        (first, *layers[1:]), ("replay",), debug="--debug" in front, config=layer,
        replay=directory, check=args.check, force=args.force, trust=args.trust,
    )  # fmt: skip
    return run_request(asked, host, catalogue, ("primus", *front, "replay", *behind))


def _split(words: Sequence[str], catalogue: Catalogue) -> tuple[Sequence[str], list[Layer]]:
    """The words of this command, its switches behind a runtime, too; and the runtimes (`direct` if there is none)."""
    runtimes = catalogue.first_words("runtimes")
    if words[1:] and words[0] in runtimes and words[1][:1] != "-":
        whole = shlex.join([words[1], words[0], *words[2:]])
        raise RequestError(f"the run comes before the runtime '{words[0]}'", fix=f"primus replay {whole}")
    places = [index for index, word in enumerate(words) if word[:1] != "-" and nearest(word, runtimes, 0.8)]
    first = next((at for at in places if any(word[:1] != "-" for word in words[:at])), len(words))
    switches = [word for word in words[first:] if word in ("--check", "--force", "--trust")]
    behind = [word for word in words[first:] if word not in switches] or ["direct"]
    return [*words[:first], *switches], list(_layers(behind[: -1 if behind[-1] == "--" else None], runtimes))


def _refuse_dashes(own: Sequence[str], words: Sequence[str]) -> None:
    """`replay RUN -- RUNTIME ...`: the runtimes follow the run at once, and no task follows.

    Raises:
        RequestError: a `--` stands among this command's `own` words, which `words` begin with.
    """
    if "--" not in own:
        return
    at = own.index("--")
    kept = [word for word in own[at + 1 :] if word in flags_of(parser())] if own[at + 1 :] else words[len(own) :]
    wrong = f" before '{words[at + 1]}'" if words[at + 1 :] else " at its end"
    if any("=" in word and not word.startswith("-") for word in own[at + 1 :]):
        fix = f"start its command with them: `primus runs show {shlex.quote(own[0] if at else 'latest')}` shows it"
        raise RequestError("a replay takes no settings: it has those of its run", fix=fix)
    raise RequestError(
        f"a replay takes no `--`{wrong}",
        why="its task is in the snapshot, and its runtimes follow the run and its options",
        fix=f"primus replay {shlex.join([*own[:at], *kept])}",
    )


def _layers(words: Sequence[str], runtimes: Collection[str]) -> Iterator[Layer]:
    ends = [index for index, word in enumerate(words) if word == "--"]
    for number, (start, end) in enumerate(zip([0, *(end + 1 for end in ends)], [*ends, len(words)], strict=True), 1):
        head = "".join(words[start : min(start + 1, end)])
        if head not in runtimes:
            raise RequestError(
                f"segment {number}: no runtime is called '{head}'",
                why="a replay names runtimes alone: what they run is in the snapshot",
                fix=suggestion(head, runtimes) or f"known: {', '.join(sorted(runtimes))}",
                options=[head],
                meant=nearest(head, runtimes),
            )
        yield Layer(head, tuple(words[start + 1 : end]), number)
