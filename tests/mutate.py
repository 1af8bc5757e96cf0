"""Mutation tests: change one place of the code, run the tests that belong to it, and see whether one of them fails.

    python -m tests.mutate [FILE ...] [--count N] [--seed S]   a sample of generated mutations; all of them: --count 0
    python -m tests.mutate --known                             the named ones, each with the tests that must find it

A mutation survives if its tests pass: a failure, unless mutants-survived.toml lists it with a reason. An entry there
whose mutation is no longer in the code, or is killed, is a failure, too. mutants.toml has the files with their tests,
and the named mutations. The same seed gives the same sample. The default, which `hatch run test --all` runs, and `--known` take
about 15 minutes each on two cores. The checkout stays as it is: what is changed is a copy of the packages.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import accumulate, permutations
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import ROOT

_PAIRS = "Eq NotEq, Lt LtE, Gt GtE, In NotIn, Is IsNot, And Or, Add Sub, Mult Div"
_OTHER = {
    getattr(ast, one): getattr(ast, other) for pair in _PAIRS.split(", ") for one, other in permutations(pair.split())
}
_OWN = "HYPOTHESIS_STORAGE_DIRECTORY"  # and what every process of a mutated Primus is known by
_LIMIT_S = 100  # for one test: a mutation may make it wait for ever


class Mutant(NamedTuple):
    """One change of one file below packages/; `function` and `change` name it, whatever line it is on."""

    file: str
    function: str
    change: str
    line: int
    start: int
    end: int
    new: str
    tests: Sequence[str]


def generated(file: str, tests: Sequence[str]) -> Iterator[Mutant]:
    """All mutants of a file."""
    source = (ROOT / "packages" / file).read_bytes()
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    seen = Counter[tuple[str, str]]()
    for function, node, new in _changes(ast.parse(source), ""):
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        change = f"{' '.join(source[start:end].decode().split())} → {new}"
        seen[function, change] += 1
        again = f" #{seen[function, change]}" if seen[function, change] > 1 else ""
        yield Mutant(file, function, change + again, node.lineno, start, end, new, tests)


def _changes(node: ast.AST, function: str) -> Iterator[tuple[str, Any, str]]:
    """In which function, the node to replace, and the text in its place."""
    if new := _mutated(node):
        yield function, node, new
    skipped = ("annotation", "returns", "decorator_list")
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            # Within an f-string, Python 3.11 gives no true positions.
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr) and name not in skipped:
                inner = isinstance(child, (ast.FunctionDef, ast.ClassDef)) and child.name
                yield from _changes(child, f"{function}.{inner}".strip(".") if inner else function)


def _mutated(node: ast.AST) -> str:
    """What stands in the place of this node; empty: it stays."""
    operators = getattr(node, "ops", [getattr(node, "op", None)])
    if other := _OTHER.get(type(operators[0])):
        changed = type(node)(**{**vars(node), "op": other(), "ops": [other(), *operators[1:]]})
        return ast.unparse(changed) if isinstance(node, ast.stmt) else f"({ast.unparse(changed)})"
    match node:
        case ast.UnaryOp(ast.Not(), operand):
            return f"({ast.unparse(operand)})"
        case ast.Constant(int(value) | float(value)):
            return str(not value if isinstance(value, bool) else value + 1)
        case ast.Return(ast.Call() | ast.Name() | ast.Attribute() | ast.IfExp()):
            return "return None"
        case ast.Expr(ast.Call()) | ast.Raise():
            return "pass"
    return ""


def named(file: str, old: str, new: str, tests: Sequence[str]) -> Mutant:
    """A mutant that mutants.toml describes."""
    before, found, after = (ROOT / "packages" / file).read_bytes().partition(old.encode())
    if not found or old.encode() in after:
        raise SystemExit(f"mutants.toml: {file} must have this text once: {old}")
    return Mutant(file, "", f"{old} → {new}", before.count(b"\n") + 1, len(before), len(before + found), new, tests)


def found_by(mutant: Mutant) -> str:
    """The test that finds the mutation; empty: it survived."""
    with tempfile.TemporaryDirectory(prefix="mutate-", ignore_cleanup_errors=True) as name:
        folder, python = Path(name), _installed(Path(name))
        path = folder / "packages" / mutant.file
        source = path.read_bytes()
        path.write_bytes(source[: mutant.start] + mutant.new.encode() + source[mutant.end :])
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environ |= {_OWN: f"{name}/hypothesis", "PATH": f"{python.parent}:{environ['PATH']}"}
        options = f"-xq --timeout={_LIMIT_S} -p no:cacheprovider -p no:xdist --basetemp={name}/tmp".split()
        command = [str(python), "-m", "pytest", *options, *mutant.tests]
        with (folder / "output").open("w") as output:
            code = subprocess.run(command, env=environ, cwd=ROOT, stdout=output, stderr=output, check=False).returncode
        _end(name)
        said = (folder / "output").read_text()
    tests = [line.split()[1] for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if code and not (tests and code in (1, 2)):  # 1: a test failed; 2: something could not be imported
        raise SystemExit(f"{' '.join(command)}: exit code {code}\n{said}")
    return tests[0] if code else ""


def _installed(folder: Path) -> Path:
    """A Python with a copy of the packages in place of the checkout's; tests may set PYTHONPATH as they like."""
    for src in sorted((ROOT / "packages").glob("*/src")):
        shutil.copytree(src, folder / src.relative_to(ROOT))
    venv.create(folder / "venv", symlinks=True)
    (site,) = (folder / "venv").glob("lib/*/site-packages")
    # The packages of this environment, but none of its `.pth` files: they lead to the checkout.
    paths = [*sorted(folder.glob("packages/*/src")), sysconfig.get_path("purelib")]
    (site / "packages.pth").write_text("".join(f"{path}\n" for path in paths))
    python = folder / "venv/bin/python"
    primus = Path(shutil.copy(Path(sys.executable).with_name("primus"), python.parent))
    primus.write_text(f"#!{python}\n{primus.read_text().partition(chr(10))[2]}")
    return python


def _end(folder: str) -> None:
    """End what a mutated Primus left behind."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{_OWN}={folder}/".encode() in environ.read_bytes():
                os.kill(int(environ.parent.name), signal.SIGKILL)


def tried(mutants: Sequence[Mutant]) -> dict[tuple[str, str, str], str]:
    """The tests that find them."""
    found = {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for mutant, test in zip(mutants, pool.map(found_by, mutants), strict=True):
            found[mutant[:3]] = test
            said = f"killed by {test}" if test else "survived"
            print(f"{len(found)}/{len(mutants)} {said}: {_shown(mutant)}", flush=True)
    return found


def _shown(mutant: Mutant) -> str:
    return f"{mutant.file.rpartition('/src/')[2]}:{mutant.line} {mutant.function}: {mutant.change}"


def main(argv: Sequence[str] | None = None) -> int:
    """Try mutations; 1 where the tests and the list of survivors do not agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="mutate only this; the end of its path is enough")
    parser.add_argument("--count", type=int, default=60, help="size of the sample; 0: all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="choose another sample (default: %(default)s)")
    parser.add_argument("--known", action="store_true", help="try the named mutations")
    parser.add_argument("--data", type=Path, default=ROOT / "tests", help="folder of the two .toml files")
    args, began = parser.parse_args(argv), time.monotonic()
    data, survived = (tomllib.loads((args.data / f"mutants{end}.toml").read_text()) for end in ("", "-survived"))
    everything = [mutant for file, tests in data["tests"].items() for mutant in generated(file, tests)]
    listed = {(entry["file"], entry["function"], entry["change"]) for entry in survived["survived"]}
    if gone := listed - {mutant[:3] for mutant in everything}:
        raise SystemExit(f"mutants-survived.toml: there is no such mutation: {gone}")
    some = [one for one in everything if one.file.endswith(tuple(args.files) or "")]
    some.sort(key=lambda one: hashlib.sha256(f"{args.seed} {one[:3]}".encode()).digest())
    mutants = [named(**entry) for entry in data["known"]] if args.known else some[: args.count or None]
    groups = {tuple(one.tests): one._replace(change=f"unchanged {one.tests}", end=one.start, new="") for one in mutants}
    if not mutants or any(tried(list(groups.values())).values()):
        raise SystemExit("tests fail without any mutation" if mutants else f"nothing to mutate in {args.files}")
    found = tried(mutants)
    wrong = [f"survived, not listed: {_shown(one)}" for one in mutants if not found[one[:3]] and one[:3] not in listed]
    wrong += [f"mutants-survived.toml: killed by {found[key]}: {key}" for key in listed if found.get(key)]
    for file in dict.fromkeys(one.file for one in mutants):
        ends = [bool(found[one[:3]]) for one in mutants if one.file == file]
        print(f"{file:75} {sum(ends):4} killed {ends.count(False):4} survived")
    print(*wrong, f"{len(mutants)} mutations, {time.monotonic() - began:.0f} s", sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
