"""The worker of `bench suite`, one for each rank: runs the parts one after the other, and reports once.

Primus plans the parts: this worker gets them as arguments.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from primus_bench.benchmarks.suite import options, report
from primus_bench.benchmarks.suite.options import Settings
from primus_bench.benchmarks.suite.report import Result
from primus_bench.benchmarks.suite.running import Ended, run
from primus_bench.measure.ranks import Ranks, join
from primus_bench.options import parsed
from primus_bench.report import received
from primus_bench.report.files import prepare
from primus_bench.report.outcome import publish
from primus_core import get_logger
from primus_core.errors import PrimusError
from primus_machine.host import HostRoot

__all__ = ["main"]

_SLACK_S = 300.0
"""Ranks wait for each other as long as a part may take, and so much longer."""


def main(argv: Sequence[str]) -> int:
    """Run what `argv` names; rank 0 prints and writes the result.

    Raises:
        PrimusError: a benchmark failed, after all of them and the report: its exit code is the largest one.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    settings = options.settle(parsed("suite", options.declare, argv), gpu_here=False)
    environ = HostRoot().environ
    ranks = join(environ, settings.timeout_s + _SLACK_S)
    if ranks.place.rank == 0:
        prepare(settings.outputs)
    results: list[Result] = []
    try:
        _run_all(settings, ranks, environ, results)
    except (KeyboardInterrupt, SystemExit):  # what is measured already has cost its time
        if ranks.place.rank == 0:
            _publish(_unfinished(settings, results), ranks, results)
        raise
    if ranks.place.rank == 0:
        _publish(settings, ranks, results)
    ranks.exchange(None)  # whoever fails first is the one that is reported: not before the report
    _refuse_failed([one.ended for one in results])
    return 0


def _publish(settings: Settings, ranks: Ranks, results: Sequence[Result]) -> None:
    found = report.document(settings, ranks.hosts, results)
    publish(found, report.sheet(found, results), settings.outputs, json=settings.json, may_lack=True)


def _unfinished(settings: Settings, results: Sequence[Result]) -> Settings:
    """The settings in which the parts that did not end are skipped."""
    done = {one.ended.part.name for one in results}
    parts = (
        one if one.skipped or one.name in done else one._replace(skipped="the suite was stopped before it ended")
        for one in settings.parts
    )
    return settings._replace(parts=tuple(parts))


def _run_all(settings: Settings, ranks: Ranks, environ: Mapping[str, str], results: list[Result]) -> None:
    chosen = [one for one in settings.parts if not one.skipped]
    say: Callable[[str], object] = _say if ranks.place.rank == 0 else lambda _: None
    for number, part in enumerate(chosen, 1):
        say(f"{part.name} is running ({number} of {len(chosen)})")
        one = _read(settings.directory, run(part, number, ranks, environ, settings.timeout_s), ranks)
        say(f"{part.name} {one.outcome} in {one.ended.seconds:.0f} s")
        results.append(one)


def _say(text: str) -> None:
    get_logger().info("bench_progress", message=f"bench suite: {text}")


def _read(directory: str, ended: Ended, ranks: Ranks) -> Result:
    """With the document that a part wrote. What cannot be a result fails it, on all ranks alike."""
    found, why = None, ""
    if ranks.place.rank == 0 and not ended.exit_code:
        try:
            found = received.read(os.path.join(directory, f"{ended.part.name}.json"))
        except PrimusError as error:
            why = f"{error.what}: {error.why}" if error.why else error.what
    wrong = ranks.exchange(why)[0]
    return Result(ended._replace(exit_code=1, why=wrong) if wrong else ended, found)


def _refuse_failed(ended: Sequence[Ended]) -> None:
    failed = [one for one in ended if one.exit_code]
    if not failed:
        return
    what = f"{len(failed)} of {len(ended)} benchmarks failed"
    error = PrimusError(what, why="\n".join(f"{one.part.name}: {one.why}" for one in failed),
                        fix=f"run it alone: primus direct -- bench {failed[0].part.name}")  # fmt: skip
    error.exit_code = max(one.exit_code for one in failed)
    raise error


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
