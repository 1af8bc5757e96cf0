"""Start a run again, as it was: with the same settings, environment and scripts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from primus_core.errors import RequestError, suggestion
from primus_core.host import HostRoot
from primus_core.planning.carry_out import carry_out
from primus_core.plugins.catalogue import Catalogue
from primus_core.request.arguments import Parser, parse_segment
from primus_core.request.request import Layer, Request, global_words
from primus_core.runs import listing as runs

__all__ = ["parser", "run"]

_EPILOG = """examples:
  primus replay output/exp_2026_11_21_134522 --check
  primus replay exp
  primus replay latest direct --env NCCL_DEBUG=INFO
  primus replay exp container --image IMG
  primus direct -- train pretrain --replay output/exp_2026_11_21_134522

What differs is told first. Where it could not be the same run (another GPU model, too few GPUs, a missing backend),
nothing starts and the exit code is 3."""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus replay", epilog=_EPILOG, description="Start a saved run again.")
    switches = "[--check] [--force] [--trust] [--dry-run] [--json]"
    parser.usage = f"primus replay RUN {switches} [runtime [options] [-- runtime [options]]]"
    parser.add_argument("run", metavar="RUN", help="a run directory, a run's name, or an experiment's (its newest run)")
    parser.add_argument("--check", action="store_true", help="only say what equals and what differs")
    parser.add_argument("--force", action="store_true", help="start it although it cannot be the same run")
    parser.add_argument("--trust", action="store_true", help="believe it for this once, although it is another user's")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    parser.add_argument("--json", action="store_true", help="with --check or --dry-run: as JSON")
    parser.add_argument("--assume-host", metavar="FILE", default="", help="with --check or --dry-run: on that machine")
    return parser


def run(words: Sequence[str], layer: str) -> int:
    """Plan the replay as `primus <runtime> -- <task> --replay RUN` does, and carry it out."""
    host = HostRoot()
    front, behind = global_words(words)
    catalogue = Catalogue.here(host, layer)
    own, layers = _split(behind, catalogue)
    args = parse_segment(parser(), own)
    directory = runs.resolve(args.run, catalogue.system.workspace or "output", host)
    switches = [flag for flag, on in (("--json", args.json), ("--dry-run", args.dry_run or "--dry-run" in front)) if on]
    switches += ["--assume-host", args.assume_host] if args.assume_host else []
    first = layers[0]._replace(words=(*switches, *layers[0].words))
    asked = Request(
        (first, *layers[1:]), ("replay",), debug="--debug" in front, config=layer,
        replay=directory, check=args.check, force=args.force, trust=args.trust,
    )  # fmt: skip
    return carry_out(asked, host, catalogue, ("primus", *front, "replay", *behind))


def _split(words: Sequence[str], catalogue: Catalogue) -> tuple[Sequence[str], list[Layer]]:
    """The words of this command, and the runtimes behind them (`direct` where there is none)."""
    runtimes = catalogue.first_words("runtimes")
    first = next((index for index, word in enumerate(words) if index and word in runtimes), len(words))
    return words[:first], list(_layers(words[first:] or ["direct"], runtimes))


def _layers(words: Sequence[str], runtimes: Collection[str]) -> Iterator[Layer]:
    ends = [index for index, word in enumerate(words) if word == "--"]
    for number, (start, end) in enumerate(zip([0, *(end + 1 for end in ends)], [*ends, len(words)], strict=True), 1):
        head = "".join(words[start : min(start + 1, end)])
        if head not in runtimes:
            raise RequestError(
                f"segment {number}: no runtime is called '{head}'",
                why="a replay names runtimes alone: what they run is in the snapshot",
                fix=suggestion(head, runtimes) or f"known: {', '.join(sorted(runtimes))}",
            )
        yield Layer(head, tuple(words[start + 1 : end]), number)
