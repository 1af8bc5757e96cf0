"""Who kept the others waiting: from what ranks say of their last collective, and from flight recorders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from primus_diagnose.scan.stacks import SIGNATURE as STACK
from primus_diagnose.scan.tally import FileResult
from primus_diagnose.verdict import Hit
from primus_machine.files.recorder import Call, Dump

__all__ = ["BEHIND", "DESYNC", "LINES", "RECORDER", "STACKS", "inferred"]

BEHIND, DESYNC = "collective.rank_behind", "collective.desync"
LINES, RECORDER, STACKS = "lines", "flight recorder", "stacks"
"""What an answer is inferred from: what ranks print on a time-out is a hint, what they recorded is a proof."""
_TIMEOUT, _PROGRESS = "nccl.watchdog_timeout", "nccl.last_work"


def inferred(results: Iterable[FileResult], dumps: Sequence[Dump], known: set[int]) -> list[Hit]:
    """What follows from several ranks together; nothing: nobody waited, or all waited for the same."""
    results = list(results)
    hits = [hit for result in results for tally in result.tallies.values() for hit in (tally.first, tally.last)]
    waiting = {hit.rank: hit for hit in hits if hit.signature == _TIMEOUT and hit.rank is not None}
    enqueued = {hit.rank: hit for hit in hits if hit.signature == _PROGRESS and hit.rank is not None}
    stacks = {hit.rank: hit for hit in _last(results) if hit.signature == STACK and hit.rank is not None}
    return (
        list(_of_dumps(dumps))
        or list(_of_stacks(stacks))
        or list(_of_operations(waiting))
        or list(_of_counters(enqueued))
        or list(_of_silence(waiting, known))
    )


def _last(results: Iterable[FileResult]) -> Iterator[Hit]:
    """The last line of each signature and rank: of the stacks of a rank's threads, that of the main one."""
    return (tally.last for result in results for tally in result.tallies.values())


def _of_stacks(stacks: Mapping[int, Hit]) -> Iterator[Hit]:
    """Some wait in a collective, others are elsewhere in the program."""
    waiting = [hit.groups["collective"] for hit in stacks.values() if hit.groups.get("collective")]
    elsewhere = [rank for rank, hit in sorted(stacks.items()) if not hit.groups.get("collective")]
    if waiting and elsewhere:
        for rank in elsewhere:
            hit = stacks[rank]
            groups = {"what": f"it is at {hit.code}", "operation": waiting[0], "from": STACKS}
            yield replace(hit, signature=BEHIND, groups=groups, text=f"rank {rank} is at {hit.code}")


def _of_operations(waiting: Mapping[int, Hit]) -> Iterator[Hit]:
    """The same number in the sequence, and another operation."""
    by_sequence: dict[str, dict[int, Hit]] = {}
    for rank, hit in waiting.items():
        by_sequence.setdefault(hit.groups.get("seq", ""), {})[rank] = hit
    for ranks in by_sequence.values():
        operations = Counter(hit.groups.get("op", "") for hit in ranks.values())
        if len(operations) > 1:
            most = operations.most_common(1)[0][0]
            odd = min(rank for rank, hit in ranks.items() if hit.groups.get("op") != most)
            hit = ranks[odd]
            yield _hit(DESYNC, odd, f"{hit.groups.get('op')} where the others call {most}", hit)
            return


def _of_counters(enqueued: Mapping[int, Hit]) -> Iterator[Hit]:
    """Who enqueued the fewest collectives has not called the one that the others wait in."""
    counts = {rank: int(hit.groups.get("enq", "-1")) for rank, hit in enqueued.items()}
    if len(set(counts.values())) > 1:
        rank = min(counts, key=lambda rank: (counts[rank], rank))
        text = f"it enqueued {counts[rank]} collectives, others {max(counts.values())}"
        yield _hit(BEHIND, rank, text, enqueued[rank])


def _of_silence(waiting: Mapping[int, Hit], known: set[int]) -> Iterator[Hit]:
    """Few ranks did not time out where all others did: they were not in the collective."""
    silent = sorted(known - set(waiting))
    if len(waiting) > 1 and silent and 2 * len(silent) <= len(waiting):
        hit = waiting[min(waiting)]
        text = f"{len(waiting)} ranks timed out in {hit.groups.get('op', 'a collective')}, this one did not"
        for rank in silent[:8]:
            yield _hit(BEHIND, rank, text, hit, own=False)


def _hit(name: str, rank: int, text: str, seen: Hit, *, own: bool = True) -> Hit:
    groups = {"what": text, "operation": seen.groups.get("op", "a collective"), "from": LINES}
    node = seen.node if own else ""
    return Hit(name, seen.text, seen.file, seen.line, seen.offset, rank, node, seen.time, groups)


def _of_dumps(dumps: Sequence[Dump]) -> Iterator[Hit]:
    """For each group of ranks, the earliest collective that not all of them called, or called alike."""
    groups = {name: ranks for dump in dumps for name, ranks in dump.groups.items()}
    found = [hit for name, ranks in groups.items() for hit in _of_group(dumps, name, ranks)]
    hits = {hit.rank: hit for hit in reversed(found)}
    yield from sorted(hits.values(), key=lambda hit: hit.rank or 0)


def _of_group(dumps: Sequence[Dump], name: str, ranks: Sequence[int]) -> Iterator[Hit]:
    calls = {dump.rank: {call.sequence: call for call in dump.calls if call.group == name} for dump in dumps}
    calls = {rank: calls[rank] for rank in ranks if rank in calls}
    if len(calls) < 2:
        return
    last = {rank: max(own, default=0) for rank, own in calls.items()}
    newest = max(last.values())
    behind = [rank for rank, number in last.items() if number < newest]
    if behind and len(behind) < len(calls):
        waited = next(own[newest] for own in calls.values() if newest in own)
        lowest = min(last[rank] for rank in behind)
        for rank in (rank for rank in behind if last[rank] == lowest):
            text = f"its last collective of group {name} is number {last[rank]}, that of others {newest}"
            yield _from_dump(BEHIND, dumps, rank, text, waited)
        return
    yield from _of_states(dumps, calls, newest)


def _of_states(dumps: Sequence[Dump], calls: Mapping[int, Mapping[int, Call]], newest: int) -> Iterator[Hit]:
    """All have called it. Who called another operation, or never started it where others did?"""
    here = {rank: own[newest] for rank, own in calls.items() if newest in own}
    operations = Counter((call.operation, call.sizes) for call in here.values())
    if len(operations) > 1 and len({operation for operation, _ in operations}) > 1:
        usual = operations.most_common(1)[0][0]
        for rank, call in here.items():
            if (call.operation, call.sizes) != usual:
                yield _from_dump(DESYNC, dumps, rank, f"{call.operation} where the others call {usual[0]}", call)
        return
    idle = [rank for rank, call in here.items() if call.state == "scheduled"]
    if idle and len(idle) < len(here):
        for rank in idle:
            text = "its GPU has not begun what those of others have: an earlier kernel of it hangs"
            yield _from_dump(BEHIND, dumps, rank, text, here[rank])


def _from_dump(name: str, dumps: Sequence[Dump], rank: int, what: str, call: Call) -> Hit:
    path = next(dump.path for dump in dumps if dump.rank == rank)
    groups = {"what": what, "operation": call.operation or "a collective", "from": RECORDER}
    return Hit(name, f"rank {rank}: {what}", path, rank=rank, groups=groups, code=call.frame)
