"""The worker of `bench gemm-tune`, one process: files of shapes and results, and the search with `hipblaslt-bench`.

It runs alone too: `python -m primus_bench.tuning.worker tune logs --dir tuning`
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from tabulate import tabulate

from primus_bench.measure import where
from primus_bench.measure.progress import logged
from primus_bench.report.files import alone, prepare
from primus_bench.report.outcome import publish
from primus_bench.tuning import options, record, report, results, shapes, stack
from primus_bench.tuning.calls import COMMAND
from primus_bench.tuning.record import FINISHED, RESULT, Finished, Record
from primus_bench.tuning.results import Entry
from primus_bench.tuning.search import Search
from primus_bench.tuning.stack import Stack
from primus_bench.tuning.verification import Verified, verify
from primus_core.errors import MachineError, PrimusError, RequestError
from primus_machine import facts
from primus_machine.host import HostRoot
from primus_machine.text import printable
from primus_machine.units import counted

__all__ = ["OVERRIDE", "main", "run"]

OVERRIDE = "HIPBLASLT_TUNING_OVERRIDE_FILE"
_DISTURBING = ("HIPBLASLT_TUNING_", "HIPBLASLT_LOG_")
"""Beginnings of variables with which `hipblaslt-bench` would not do by default what it does by default."""
_RETRY = "run it again to try these once more, or continue without them"
_MOST_MISSED = 10


def main(argv: Sequence[str]) -> int:
    """Do what `argv` asks for."""
    parser = argparse.ArgumentParser(prog=f"python -m {options.WORKER}", allow_abbrev=False)
    options.declare(parser)
    return run(parser.parse_args(argv))


def run(args: argparse.Namespace) -> int:
    """Do what was parsed."""
    {"dump": _dump, "tune": _tune, "apply": _apply, "verify": _verify, "report": _report}[args.verb](args)
    return 0


def _dump(args: argparse.Namespace) -> None:
    found = shapes.read(args.logs)
    text = shapes.as_text(sorted(found.shapes, key=lambda one: one.times, reverse=True))
    if not args.output:
        sys.stdout.write(text)
        sys.stderr.write("".join(f"note: {note}\n" for note in found.notes))
        return
    prepare([args.output])
    record.save(args.output, text)
    print(f"{counted(len(found.shapes), 'shape')}, {counted(found.calls, 'call')}: {args.output}")
    _print_notes(found.notes)


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"note: {note}")


def _tune(args: argparse.Namespace) -> None:
    found = shapes.read(args.logs)
    prepare([*args.output, os.path.join(args.directory, RESULT)])
    with alone(args.directory, "another process tunes in", "--dir"):
        here, done = _search(args, found)
        whole = _written(args, here, done, record.counts(found.shapes))
    _print_notes(found.notes)
    document = report.document(whole)
    publish(document, report.sheet(document), args.output, json=args.json, may_lack=True)
    failed = [one for one, _ in whole.shapes if one.failed]
    if failed:
        what = f"{len(failed)} of {counted(len(whole.shapes), 'shape')} could not be tuned"
        raise PrimusError(what, why=failed[0].failed, fix=_RETRY)


def _search(args: argparse.Namespace, found: shapes.Dump) -> tuple[Stack, dict[str, Finished]]:
    """Tune what has not been tuned before; all that is finished, by command."""
    host = HostRoot()
    environ, known = _undisturbed(host.environ), facts.read(host)
    here = stack.ask(_bench(environ), environ, known)
    before, kept = record.finished(args.directory)
    if before is None:
        record.begin(args.directory, here)
    else:
        what = f"{os.path.join(args.directory, FINISHED)}: what is finished"
        stack.require_same(before, here, what, "choose another --dir, or delete the file")
    done = {one.command: one for one in kept if one.method == args.method and not one.failed}
    left = [shape.call for shape in found.shapes if shape.call.text not in done]
    gpus = args.gpus or sum(gpu.vendor == "amd" for gpu in known.gpus) or 1
    print(f"{counted(len(found.shapes), 'shape')}, {len(found.shapes) - len(left)} of them finished before; "
          f"{counted(gpus, 'GPU')}; {here}", flush=True)  # fmt: skip
    search = Search(_bench(environ), args.method, gpus, args.directory, args.timeout, environ)
    with logged() as progress:
        for number, one in enumerate(search.run(left), 1):
            record.add(args.directory, one)
            done[one.command] = one
            progress(f"{number} of {counted(len(left), 'shape')} tuned")
    return here, done


def _undisturbed(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith(_DISTURBING)}


def _bench(environ: Mapping[str, str]) -> str:
    if not (found := stack.find(environ)):
        raise MachineError(f"{COMMAND} is neither on PATH nor in ROCM_PATH", fix=stack.INSTALL)
    return found


def _written(args: argparse.Namespace, here: Stack, done: Mapping[str, Finished], counts: Mapping[str, int]) -> Record:
    """Write the tuning file and its record: of shapes that hipBLASLt cannot tell apart, the one that takes longest."""
    found = [(done[command], count) for command, count in counts.items()]
    best: dict[object, Entry] = {}
    for one, _ in sorted(found, key=lambda pair: pair[1] * (pair[0].default_us or 0), reverse=True):
        if one.entry:
            best.setdefault(one.entry.key, one.entry)
    if not best:
        raise PrimusError("no shape could be tuned", why=next((one.failed for one, _ in found), ""), fix="run it again")
    path = os.path.join(args.directory, RESULT)
    record.save(path, results.as_text(best.values()))
    host, measured = HostRoot().hostname(), where.of_python()["measured"]
    whole = Record(here, tuple(found), host, measured, tuple(map(os.path.abspath, args.logs)))
    record.write(path, whole)
    return whole


def _apply(args: argparse.Namespace) -> None:
    path = os.path.abspath(args.file)
    entries, notes = results.read(path), list[str]()
    host = HostRoot()
    known = facts.read(host)
    recorded, here = record.stack_of(path), _here(_undisturbed(host.environ), known, notes)
    stack.require_same(recorded, here, path, _again(path))
    _require_git_version(path, entries, here)
    notes += _doubts(entries, recorded, here)
    if args.json:
        said = {"variables": {OVERRIDE: path}, "entries": len(entries), "stack": recorded._asdict(), "notes": notes}
        print(json.dumps({"schema": 1, **said}, indent=1))
        return
    for note in (f"{len(entries)} entries, for {recorded}" * bool(str(recorded)), *notes):
        sys.stderr.write(f"note: {note}\n" * bool(note))
    print(f"export {OVERRIDE}={shlex.quote(path)}")


def _again(path: str) -> str:
    """How to tune again what led to a tuning file, in a folder of its own: that one is for another machine."""
    found = record.read(path)
    logs = found.logs if found and found.logs else ("LOG",)
    folder = f"{os.path.dirname(os.path.abspath(path))}-new"
    return f"tune again: primus direct -- bench gemm-tune tune {shlex.join(map(printable, (*logs, '--dir', folder)))}"


def _here(environ: Mapping[str, str], known: facts.Facts, notes: list[str]) -> Stack:
    """As much as can be known of this machine."""
    try:
        return stack.ask(_bench(environ), environ, known)
    except MachineError as error:
        notes.append(f"the version of hipBLASLt here was not compared: {error.what}")
        return stack.of_facts(known)


def _require_git_version(path: str, entries: Sequence[Entry], here: Stack) -> None:
    """Refuse entries without a kernel's name of another hipBLASLt: it ignores them."""
    unnamed = {one.git_version for one in entries if not one.kernel}
    other = {one for one in unnamed if not _is_same_code(one, here.git_version)}
    if here.git_version and other:
        why = "its entries have no names of kernels, so the versions must be equal"
        what = f"{path} is for hipBLASLt {', '.join(sorted(other))}, and here it is {here.git_version}"
        raise MachineError(what, why=why, fix=_again(path))


def _is_same_code(one: str, other: str) -> bool:
    """Whether these are one commit, abbreviated to different lengths."""
    short, long = sorted((one.removesuffix("-dirty"), other.removesuffix("-dirty")), key=len)
    return bool(short) and long.startswith(short)


def _doubts(entries: Sequence[Entry], recorded: Stack, here: Stack) -> list[str]:
    clashing = results.clashes(entries)
    return [
        *[f"several kernels for {key}: only one of them counts" for key in clashing],
        *_wide(entries),
        *["the file does not say for which GPU and which versions it is"] * (not recorded.architecture),
        *["the GPU of this machine is not known"] * (not here.architecture),
    ]


def _wide(entries: Sequence[Entry]) -> list[str]:
    """What the keys of entries in hipBLASLt's newer form do not have."""
    count = sum(entry.is_wide for entry in entries)
    what = "leading dimensions, strides, epilogue and scales, which are not compared here"
    return [f"hipBLASLt also looks {count} of {len(entries)} entries up by {what}"] * bool(count)


def _verify(args: argparse.Namespace) -> None:
    entries, found = results.read(args.file), shapes.read(args.logs)
    rows = verify(entries, found.shapes)
    tuned = [row for row in rows if row.outcome != "untuned"]
    missed = [row for row in tuned if row.missed]
    notes = [*found.notes, *_coverage(rows, entries), *_wide(entries)]
    if args.json:
        said = {"shapes": [row.to_dict() for row in rows], "missed": len(missed), "notes": notes}
        print(json.dumps({"schema": 1, **said}, indent=1))
    else:
        print(_table([*missed, *(row for row in tuned if not row.missed)]))
        _print_notes(notes)
    if missed:
        raise _not_used(missed, len(tuned))
    if not tuned:
        why = "none of its shapes was called"
        raise PrimusError(f"the log has nothing of {args.file}", why=why, fix="name the log of a run of this model")


def _coverage(rows: Sequence[Verified], entries: Sequence[Entry]) -> list[str]:
    called = {row.key for row in rows}
    without = [row for row in rows if row.outcome == "untuned"]
    never = sum(key not in called for key in results.by_key(entries))
    some = sum(row.shape.times for row in without)
    return [
        *[f"{counted(len(without), 'shape')} of the log ({counted(some, 'call')}) without an entry"] * bool(without),
        *[f"entries of the file that were not called: {never}"] * bool(never),
    ]


def _table(rows: Sequence[Verified]) -> str:
    cells = [(str(row.key), row.outcome, row.shape.times, ", ".join(map(str, row.tuned)), row.used) for row in rows]
    headers = ["shape (column-major)", "outcome", "calls", "tuned", "used"]
    return str(tabulate(cells, headers=headers, tablefmt="simple_outline", disable_numparse=True))


def _not_used(missed: Sequence[Verified], tuned: int) -> PrimusError:
    lines = [f"{row.key}: solution {row.used} instead of {', '.join(map(str, row.tuned))}" for row in missed]
    more = [f"and {len(lines) - _MOST_MISSED} more"] * (len(lines) > _MOST_MISSED)
    return PrimusError(
        f"{len(missed)} of {counted(tuned, 'tuned shape')} did not use the tuned kernel",
        why="\n".join([*lines[:_MOST_MISSED], *more]),
        fix=f"check that {OVERRIDE} was set, that the versions are equal, and that no calls come through rocBLAS",
    )


def _report(args: argparse.Namespace) -> None:
    results.read(args.file)
    found = record.read(args.file)
    if found is None:
        why = f"there is no {record.path_of(args.file)}, which has the counts and the times before"
        raise RequestError(f"{args.file} has no record", why=why, fix=_again(args.file))
    prepare(args.output)
    document = report.document(found)
    publish(document, report.sheet(document), args.output, json=args.json, may_lack=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
