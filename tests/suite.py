"""All tests, part by part: every part runs, every part is reported with its time, and the worst exit code counts.

    hatch run test                       # the gate: linters, all quick tests, and one real thing of each kind
    hatch run test --all                 # every test, mutations and benchmarks
    hatch run test --newest              # the gate with the newest release of every package, without the locks
    hatch run test --part megatron -k resolve
    hatch run quick [PACKAGE]            # the quick tests of one package, or of all for this Python
    hatch run lint                       # linters, types and contracts only

A part is a command. Each environment of hatch.toml with a script `test` is a part, so a further backend is one, too.
Two parts run at a time, since many tests wait; the output of each is in `.suite/PART.log`. When all have ended, each
test that failed runs once more, alone. What passes then is flaky: it is named, and does not fail the run, unless more
than five tests failed.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests import newest, python312
from tests.outcomes import COMPLETE, FAILED, PART

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".suite"
NO_TESTS = 5
"""Pytest's exit code where a selection, such as `-k`, leaves no test."""
MISSING, NOT_FOUND = 3, 127
"""The exit codes of a part that this machine cannot run, and of one whose program is not there."""
PATIENCE_S = 60
"""How long an interrupted part may take to end what its tests have started."""
SHOWN = 2000
"""Lines of a part that failed."""
QUIET_S = 60
"""How long nothing is printed at most."""
MOST_FLAKY = 5
"""So many failed tests get a second chance; more of them are no accident."""
MODULE = (sys.executable, "-m")
PYTEST = (*MODULE, "pytest", "-n", "auto", "--dist", "loadgroup")
HERE = "(not kernel or torch or whole)"
"""Most tests of the kernel run once, in the kernel's own environment."""
QUICK, GATE = "not full and not smoke", "(not full or smoke)"
DEAREST = 20
"""So many tests and files are listed by what they cost."""


class Part(NamedTuple):
    """A command with a name."""

    name: str
    argv: tuple[str, ...]
    after: tuple[str, ...] = ()
    """The parts that end before this one begins."""
    python: str = ""
    """The version of Python that it needs, where that is not this one."""
    selects: bool = False
    """Whether a selection was asked of it, which may leave no test."""
    again: tuple[str, ...] = ()
    """Runs single tests of it, whose names are added; empty: it has no tests."""
    tries: int = 1
    """How often it may run until it ends well, or with failed tests: a download may fail by itself."""


class Result(NamedTuple):
    """How a part ended."""

    name: str
    code: int
    seconds: float = 0
    cpu_seconds: float = 0
    missing: str = ""
    selects: bool = False
    """Whether a selection was asked of the part."""
    flaky: tuple[str, ...] = ()
    """Tests that failed, and passed when they ran again."""

    @property
    def unselected(self) -> bool:
        """Whether that left no test."""
        return self.selects and self.code == NO_TESTS

    @property
    def status(self) -> str:
        """As the table shows it."""
        if self.missing:
            return f"not run: {self.missing}"
        if self.unselected:
            return "no test selected"
        if self.flaky and self.code == 0:
            return f"passed, {len(self.flaky)} flaky"
        return "passed" if self.code == 0 else f"failed with exit code {self.code}"


def lint_parts() -> Iterator[Part]:
    """Linters, contracts between packages, types."""
    sources = ":".join(str(path) for path in sorted(ROOT.glob("packages/*/src")))
    yield Part("ruff check", ("ruff", "check"))
    yield Part("ruff format", ("ruff", "format", "--check"))
    yield Part("import contracts", ("env", f"PYTHONPATH={sources}", "lint-imports"))
    yield Part("mypy", ("mypy",))


def parts_with_tests(words: Sequence[str], *, full: bool = False) -> Iterator[Part]:
    """What the gate runs, or all of it: the longest first, then what is quick. An environment is made, and its
    packages are installed as they are now, before its tests."""
    again: tuple[str, ...] = (*MODULE, "pytest")
    tests = HERE if full else f"{HERE} and {GATE}"
    made = ["environment default"]
    yield Part(made[0], (*MODULE, "tests.outdated"), tries=2)
    yield Part("default", (*PYTEST, "-m", tests, *words), (made[0],), selects=bool(words), again=again)
    yield from lint_parts()
    for name, env in environments().items():
        made.append(f"environment {name}")
        python, script = env.get("python", ""), "test-all" if full else "test"
        yield Part(made[-1], ("hatch", "run", f"{name}:python", "-m", "tests.outdated"), python=python, tries=2)
        again = ("hatch", "run", f"{name}:pytest")
        yield Part(name, ("hatch", "run", f"{name}:{script}", *words), (made[-1],), python, bool(words), again, tries=2)
    if full:
        beside = (*MODULE, "tests.python312", "beside", *MODULE, "pytest")
        command = (*beside, "tests/test_one_model.py", *words)
        yield Part("one model", command, tuple(made), selects=bool(words), again=beside)


def other_parts() -> Iterator[Part]:
    """What is no test: mutations, and measurements, with nothing beside them."""
    yield Part("patterns", (*MODULE, "tests.patterns"))
    yield Part("known mutations", (*MODULE, "tests.mutate", "--known"))
    yield Part("mutations", (*MODULE, "tests.mutate"), ("known mutations",))
    yield Part("benchmarks", (sys.executable, "benchmarks/run.py", "--quick"), ("mutations",))
    for name, env in environments().items():
        if "bench" in env["scripts"]:
            yield Part(
                f"benchmarks {name}",
                ("hatch", "run", f"{name}:bench", "--quick"),
                ("benchmarks",),
                env.get("python", ""),
            )


def environments() -> dict[str, Any]:
    """Each environment in hatch.toml with a script `test`, but the one of this process."""
    known = tomllib.loads((ROOT / "hatch.toml").read_text(encoding="utf-8"))["envs"]
    return {name: env for name, env in known.items() if name != "default" and "test" in env.get("scripts", {})}


class Suite:
    """Parts, run side by side to the last one, whatever becomes of the others."""

    def __init__(self, parts: Sequence[Part], slots: int, logs: Path = LOGS) -> None:
        self.parts = {part.name: part for part in parts}
        self.waiting = list(parts)
        self.slots = slots
        self.logs = logs
        self.running: list[tuple[Part, subprocess.Popen[bytes], float]] = []
        self.results: list[Result] = []

    def run(self) -> list[Result]:
        """All results, in the order in which the parts ended."""
        spoken = time.monotonic()
        try:
            while self.waiting or self.running:
                self._start()
                if self._collect() or time.monotonic() - spoken > QUIET_S:
                    spoken = time.monotonic()
                    running = (self._progress(part) for part, *_ in self.running)
                    print("running:", ", ".join(running) or "nothing", flush=True)
                time.sleep(0.2)
            self._run_failed_again()
        finally:
            self._stop()
        return self.results

    def _run_failed_again(self) -> None:
        """Run each test that failed once more, alone. A part whose failed tests all pass then has passed."""
        failed = {result.name: self._failed(self.parts[result.name]) for result in self.results if result.code}
        if sum(map(len, failed.values())) > MOST_FLAKY:
            print(f"more than {MOST_FLAKY} tests failed; none of them runs again", flush=True)
            return
        for number, result in enumerate(self.results):
            if tests := failed.get(result.name):
                print(f"--- {result.name}: again, alone: {' '.join(tests)}", flush=True)
                if self._passes_again(self.parts[result.name], tests):
                    self.results[number] = result._replace(code=0, flaky=tests)

    def _passes_again(self, part: Part, tests: Sequence[str]) -> bool:
        """Whether tests of a part pass alone. The output of the first time is kept beside that of the second."""
        log = self._log(part).with_suffix(".again.log")
        environ, _ = surroundings(part.python)
        environ[PART] = part.name
        with log.open("wb") as file:
            argv = (*part.again, *tests)
            process = subprocess.Popen(argv, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        self.running.append((part, process, time.monotonic()))  # so that an interrupt ends it, too
        code = process.wait()
        self.running.clear()
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        print(*lines[-SHOWN if code else -1 :], sep="\n", flush=True)
        return code == 0

    def _failed(self, part: Part) -> tuple[str, ...]:
        """The tests of a part that failed; empty: it has none, or did not come to its end."""
        path = self._log(part).with_suffix(".failed")
        return tuple(path.read_text(encoding="utf-8").splitlines()) if part.again and path.exists() else ()

    def _stop(self) -> None:
        """Interrupt what runs: pytest ends what its tests have started. What does not end is killed."""
        for _, process, _ in self.running:
            os.killpg(process.pid, signal.SIGINT)  # the whole group: hatch itself ignores it
        end = time.monotonic() + PATIENCE_S
        for _, process, _ in self.running:
            try:
                process.wait(max(end - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _start(self) -> None:
        for part in [part for part in self.waiting if not self._unfinished(part.after)]:
            if len(self.running) >= self.slots:
                return
            self.waiting.remove(part)
            environ, missing = surroundings(part.python)
            environ |= {PART: part.name, FAILED: str(self._log(part).with_suffix(".failed"))}
            if missing:
                self._report(Result(part.name, MISSING, missing=missing))
                continue
            try:
                process = self._process(part, environ)
            except OSError as error:
                self._report(Result(part.name, NOT_FOUND, missing=f"{part.argv[0]}: {error.strerror}"))
                continue
            self.running.append((part, process, time.monotonic()))

    def _process(self, part: Part, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        for suffix in (".log", ".failed", ".costs"):
            self._log(part).with_suffix(suffix).unlink(missing_ok=True)  # an earlier run may still write to its own
        with self._log(part).open("wb") as log:
            return subprocess.Popen(part.argv, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip

    def _unfinished(self, names: Sequence[str]) -> set[str]:
        """Of `names`, those that this run has not finished."""
        return {part.name for part in [*self.waiting, *(part for part, *_ in self.running)]} & set(names)

    def _collect(self) -> bool:
        """Whether a part has ended."""
        for running in self.running:
            part, process, began = running
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                self.running.remove(running)
                process.returncode = os.waitstatus_to_exitcode(status)
                cpu_seconds = usage.ru_utime + usage.ru_stime
                seconds = time.monotonic() - began
                result = Result(part.name, process.returncode, seconds, cpu_seconds, selects=part.selects)
                if result.code and part.tries > 1 and not self._log(part).with_suffix(".failed").exists():
                    print(f"--- {part.name}: {result.status}; tried once more", flush=True)
                    self.waiting.insert(0, part._replace(tries=part.tries - 1))
                else:
                    self._report(result, self._log(part))
                return True
        return False

    def _report(self, result: Result, log: Path | None = None) -> None:
        """Print the last line of a part that passed, and all of one that failed."""
        self.results.append(result)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log else []
        shown = lines[-SHOWN:] if result.code and not result.unselected else lines[-1:]
        if len(shown) < len(lines) and len(shown) > 1:
            shown = [f"({len(lines) - len(shown)} earlier lines: {log})", *shown]
        print(f"--- {result.name}: {result.status} after {result.seconds:.0f} s", *shown, sep="\n", flush=True)

    def _log(self, part: Part) -> Path:
        """Where its output is kept."""
        return self.logs / f"{part.name.replace(' ', '-')}.log"

    def _progress(self, part: Part) -> str:
        percent = re.findall(r"\[ *(\d+%)\]", self._log(part).read_text(encoding="utf-8", errors="replace"))
        return f"{part.name} ({percent[-1]})" if percent else part.name


def surroundings(python: str) -> tuple[dict[str, str], str]:
    """The variables of a part that needs that Python (empty: this one), or why it cannot run."""
    environ = python312.outside()
    if not python:
        return environ, ""
    if not (found := python312.find(python)):
        return {}, f"no Python {python} (searched PATH, pyenv and uv)"
    return {**environ, "PATH": f"{found.parent}:{environ.get('PATH', '')}"}, ""


def worst(results: Sequence[Result]) -> int:
    """The exit code of all. A part without its Python counts where the run must be complete."""
    complete = os.environ.get(COMPLETE, "") not in ("", "0")
    asked = [result for result in results if result.selects]
    if asked and all(result.unselected for result in asked):
        return NO_TESTS
    codes = [r.code for r in results if not r.unselected and (complete or not r.missing or r.code != MISSING)]
    return max((code if code >= 0 else 128 - code for code in codes), default=0)


def table(results: Sequence[Result]) -> str:
    """A line a part: minutes, CPU minutes of the processes that it waited for, status."""
    lines = [
        f"{result.name:<24} {result.seconds / 60:>6.1f} {result.cpu_seconds / 60:>8.1f}  {result.status}"
        for result in results
    ]
    return "\n".join([f"{'part':<24} {'min':>6} {'CPU min':>8}", *lines])


def dearest(logs: Path) -> str:
    """The tests and the files that took longest, by what the parts have written down."""
    costs: defaultdict[str, float] = defaultdict(float)
    for file in logs.glob("*.costs"):
        for line in file.read_text(encoding="utf-8").splitlines():
            seconds, _, test = line.partition(" ")
            costs[test] += float(seconds)
            costs[test.partition("::")[0]] += float(seconds)
    most = sorted(costs.items(), key=lambda cost: -cost[1])
    rows = [[f"{cost:8.0f} s  {name}" for name, cost in most if ("::" in name) is of_tests][:DEAREST]
            for of_tests in (True, False)]  # fmt: skip
    return "\n".join(["the longest tests:", *rows[0], "the longest files:", *rows[1]]) if costs else ""


def quick(package: str = "", *words: str) -> tuple[Part, ...]:
    """The quick tests, of all packages or of one.

    Raises:
        ValueError: there is no such package.
    """
    if package.startswith("-"):
        package, words = "", (package, *words)
    name = package.removeprefix("primus-")
    folders = sorted(path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py")))
    if name and name not in folders:
        raise ValueError(f"no tests of a package {package!r}; known: {', '.join(folders)}")
    python = environments().get(name, {}).get("python", "")
    where = (f"tests/{name}",) if name else ()
    options = (*PYTEST[3:], "-m", QUICK, *where, *words)
    command = ("hatch", "run", f"{name}:pytest") if python else PYTEST[:3]
    return (Part("quick", (*command, *options), python=python),)


def run(parts: Sequence[Part], slots: int, logs: Path = LOGS) -> int:
    """Run the parts and print the table; the worst exit code."""
    began = time.monotonic()
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a part may print what this terminal cannot
    logs.mkdir(exist_ok=True)
    with (logs / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another run uses this checkout: {logs}/lock is locked", file=sys.stderr)
            return MISSING
        results = Suite(parts, slots, logs).run()
    for result in results:
        for test in result.flaky:
            print(f"FLAKY {result.name}: {test}: failed, then passed alone; both outputs: {logs}")
    print(f"\n{table(results)}\n\nall parts: {(time.monotonic() - began) / 60:.1f} min; output in {logs}")
    return worst(results)


def main(argv: Sequence[str]) -> int:
    """Run what the words say; the exit code."""
    if argv[:1] == ["lint"]:
        return run([*lint_parts()], slots=2)
    if argv[:1] == ["quick"]:
        try:
            return alone(*quick(*argv[1:]))
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="hatch run test", description=(__doc__ or "").split("\n", maxsplit=1)[0],
                                     epilog="Other options, such as -k and -x, go to pytest in each part.")  # fmt: skip
    parser.add_argument("--all", action="store_true", help="run every test, mutations and benchmarks; skip nothing")
    parser.add_argument("--newest", action="store_true", help="use the newest release of every package, not the locks")
    parser.add_argument("--part", action="append", metavar="NAME", help="run this part only; may be repeated")
    parser.add_argument("--slots", type=int, default=2, metavar="N", help="run N parts at a time (default: 2)")
    args, words = parser.parse_known_args(argv)
    if any(word.startswith("-m") for word in words):
        parser.error("-m is how the parts choose their tests; use -k, or --part")
    if args.all and words:
        parser.error(f"--all takes no words for pytest: {' '.join(words)}")
    if args.all:
        os.environ[COMPLETE] = "1"
    if args.newest:
        return newest.run([word for word in argv if word != "--newest"])
    parts = [*parts_with_tests(words, full=args.all), *(other_parts() if args.all else ())]
    names = [part.name for part in parts]
    if unknown := set(args.part or ()) - set(names):
        parser.error(f"unknown part: {', '.join(sorted(unknown))}; known: {', '.join(names)}")
    try:
        code = run([part for part in parts if not args.part or part.name in args.part], max(args.slots, 1))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(dearest(LOGS) if args.all else "")
    return code


def alone(part: Part) -> int:
    """Run one part on this terminal, in place of this process; or the exit code where it cannot run here."""
    environ, missing = surroundings(part.python)
    if not missing:
        os.chdir(ROOT)
        os.execvpe(part.argv[0], part.argv, environ)  # so that pytest gets every signal, and has time for it
    print(f"{part.name} is not run: {missing}", file=sys.stderr)
    return MISSING


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
