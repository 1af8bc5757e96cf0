"""The suite itself: what ends it with a failure, and what it says of each part."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests import lock, newest, suite
from tests.conftest import ROOT, plain_environ, wait_until
from tests.outcomes import COMPLETE
from tests.outdated import outdated
from tests.suite import Part, Result, Suite

PLUGIN = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.outcomes import Outcomes
def pytest_configure(config):
    config.pluginmanager.register(Outcomes(Path({skips!r})))
"""
SKIPS = """
[[skip]]
reason = "no GPU"
except = ["gpu"]
why = "none here"
"""


def script(name: str, text: str, *after: str, python: str = "") -> Part:
    return Part(name, (sys.executable, "-c", text), after, python)


def test_every_part_runs_though_one_fails_and_the_worst_exit_code_counts(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    parts = [script("bad", "print('why it failed'); raise SystemExit(2)"), script("good", "print('1 passed')"),
             script("killed", "import os; os.kill(os.getpid(), 9)"), script("last", "pass", "bad")]  # fmt: skip
    assert suite.run(parts, 2, tmp_path) == 137
    out = capfd.readouterr().out
    assert "why it failed" in out
    for name, status in {"bad": "failed with exit code 2", "good": "passed", "last": "passed"}.items():
        assert re.search(rf"^{name} +[\d.]+ +[\d.]+  {status}$", out, re.M), out


def test_a_part_begins_after_those_that_it_needs(tmp_path: Path) -> None:
    made = tmp_path / "made"
    parts = [script("tests", f"open({str(made)!r})", "environment"),
             script("environment", f"import time; time.sleep(0.5); open({str(made)!r}, 'w')")]  # fmt: skip
    assert {result.name: result.code for result in Suite(parts, 2, tmp_path).run()} == {"environment": 0, "tests": 0}


def test_a_part_without_its_python_is_named_and_fails_a_complete_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(COMPLETE, raising=False)
    results = Suite([script("newer", "pass", python="3.12"), script("this", "pass")], 1, tmp_path).run()
    assert [result.status for result in results] == ["not run: no Python 3.12 (searched PATH, pyenv and uv)", "passed"]
    assert suite.worst(results) == 0
    monkeypatch.setenv(COMPLETE, "1")
    assert suite.worst(results) == suite.MISSING


def test_a_selection_that_leaves_no_test_in_a_part_is_no_failure_but_in_all_parts_it_is() -> None:
    none, some = Result("a", 5, selects=True), Result("b", 0, selects=True)
    assert suite.worst([none, some, Result("ruff", 0)]) == 0
    assert suite.worst([none, none, Result("ruff", 0)]) == 5
    assert none.status == "no test selected"


def test_a_part_that_collects_nothing_without_being_asked_to_fails() -> None:
    assert suite.worst([Result("a", 5), Result("b", 0)]) == 5


def test_a_part_whose_program_is_not_there_fails_and_the_others_run(tmp_path: Path) -> None:
    parts = [Part("gone", ("/nowhere/ruff",)), script("other", "pass")]
    gone, other = Suite(parts, 1, tmp_path).run()
    assert gone.status == "not run: /nowhere/ruff: No such file or directory"
    assert (suite.worst([gone, other]), other.code) == (127, 0)


INTERRUPTED = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests import suite
from tests.outcomes import COMPLETE
suite.parts_with_tests = lambda words, full: [suite.Part("long", ("bash", {script!r}))]
suite.run.__defaults__ = (Path({logs!r}),)
raise SystemExit(suite.main([]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_suite_leaves_nothing(
    number: signal.Signals, clean_environ: dict[str, str], tmp_path: Path
) -> None:
    """The part is a program that ignores the signal, as hatch does, and its child, which does not."""
    (tmp_path / "child.py").write_text(
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"open({str(tmp_path / 'begun')!r}, 'w')\n"
        "time.sleep(600)\n"
    )
    (tmp_path / "part.sh").write_text(f"trap '' INT\n{sys.executable} {tmp_path}/child.py\n")
    text = INTERRUPTED.format(root=str(ROOT), script=str(tmp_path / "part.sh"), logs=str(tmp_path))
    running = subprocess.Popen([sys.executable, "-c", text], env=clean_environ, stderr=subprocess.DEVNULL)
    wait_until((tmp_path / "begun").exists)
    running.send_signal(number)
    assert running.wait(3 * suite.PATIENCE_S) == 130


FIXTURE = """
import sys, time, pytest
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.conftest import finalize_on_signals
def pytest_configure(config):
    finalize_on_signals()
@pytest.fixture(scope="session")
def cluster():
    path = Path({folder!r}, "begun")
    path.touch()
    yield
    path.unlink()
"""


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("processes", [0, 1])
def test_terminated_tests_end_what_their_fixtures_have_set_up(
    number: signal.Signals, processes: int, clean_environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text(FIXTURE.format(root=str(ROOT), folder=str(tmp_path)))
    (tmp_path / "test_it.py").write_text("import time\ndef test_it(cluster): time.sleep(600)\n")
    words = ["-m", "pytest", "-n", str(processes), "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    running = subprocess.Popen([sys.executable, *words], env=clean_environ, cwd=tmp_path, stdout=subprocess.DEVNULL,
                               start_new_session=True)  # fmt: skip
    wait_until((tmp_path / "begun").exists)
    os.killpg(running.pid, number)
    # told again while the interpreter ends, it ends by that signal: its fixtures have ended before
    assert running.wait(60) in (pytest.ExitCode.INTERRUPTED, -signal.SIGINT)
    wait_until(lambda: not (tmp_path / "begun").exists())


CLUSTER = """
import sys, time
from tests.lab.slurm import Cluster
cluster = Cluster(1)
cluster._daemon("slurmctld", ["sleep", "600"])
print(cluster.folder, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_cluster_ends_with_the_process_that_started_it(
    number: signal.Signals, clean_environ: dict[str, str], tmp_path: Path
) -> None:
    """However that ends. `sleep` stands for a daemon; that it is gone, the fixture `nothing_is_left_behind` sees."""
    environ = {**clean_environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", CLUSTER], env=environ, cwd=ROOT, text=True,
                          stdout=subprocess.PIPE) as running:  # fmt: skip
        assert running.stdout
        folder = Path(running.stdout.readline().strip())
        assert folder.is_dir()
        running.send_signal(number)
    wait_until(lambda: not folder.exists())


def test_a_second_run_in_one_checkout_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert suite.run([script("it", "pass")], 1, tmp_path) == suite.MISSING
    assert "another run uses this checkout" in capfd.readouterr().err


def test_every_environment_with_tests_is_a_part() -> None:
    names = [part.name for part in suite.parts_with_tests(())]
    assert {"core", "megatron", "maxtext"} <= set(names)
    assert names.index("environment core") < names.index("core")


def pytest_in(folder: Path, tests: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Pytest with the reasons above in two processes, on one file."""
    (folder / "skips.toml").write_text(SKIPS)
    (folder / "conftest.py").write_text(PLUGIN.format(root=str(ROOT), skips=str(folder / "skips.toml")))
    (folder / "test_it.py").write_text("import pytest\n" + tests)
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    return subprocess.run(
        [*command, str(folder)],
        env={**plain_environ(), **environ},
        cwd=folder,
        text=True,
        capture_output=True,
        check=False,
    )


FAILING = """
import os, pytest
from pathlib import Path
@pytest.mark.parametrize("number", range({often_failing}))
def test_it(number):
    path = Path({folder!r}, f"seen{{number}}")
    seen = path.exists()
    path.touch()
    assert seen and not {always}, "the reason"
def test_other():
    pass
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("failing", "always", "code", "said"),
    [(1, False, 0, "FLAKY"), (1, True, 1, "failed with exit code 1"), (6, False, 1, "more than 5 tests failed")],
)
@pytest.mark.parametrize("processes", [0, 2])
def test_what_fails_once_is_flaky_and_what_fails_twice_or_in_numbers_fails_the_run(
    failing: int, always: bool, code: int, said: str, processes: int, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "skips.toml").write_text(SKIPS)
    (tmp_path / "conftest.py").write_text(PLUGIN.format(root=str(ROOT), skips=str(tmp_path / "skips.toml")))
    test = tmp_path / "test_it.py"
    test.write_text(FAILING.format(folder=str(tmp_path), often_failing=failing, always=always))
    pytest_here = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path))
    again = ("env", "-C", str(tmp_path), *pytest_here)
    part = Part("it", (*again, "-n", str(processes), str(test)), again=again)
    assert suite.run([part, script("other", "pass")], 2, tmp_path) == code
    out = capfd.readouterr().out
    assert said in out
    assert "test_other" not in out
    if failing == 1:
        assert "again, alone: test_it.py::test_it[0]" in out
        assert "the reason" in (tmp_path / "it.log").read_text()
        assert (tmp_path / "it.again.log").exists()


def test_what_could_not_be_made_is_tried_once_more(tmp_path: Path) -> None:
    made = tmp_path / "made"
    text = f"import os, sys\nif os.path.exists({str(made)!r}): sys.exit()\nopen({str(made)!r}, 'w'); sys.exit(3)"
    parts = [script("environment", text)._replace(tries=2), script("tests", "pass", "environment")]
    assert [(one.name, one.code) for one in Suite(parts, 2, tmp_path).run()] == [("environment", 0), ("tests", 0)]


@pytest.mark.full
def test_in_a_complete_run_a_skip_for_a_reason_that_is_not_listed_fails(tmp_path: Path) -> None:
    tests = "@pytest.mark.skip(reason='{}')\ndef test_it(): ...\n"
    assert pytest_in(tmp_path, tests.format("no GPU"), PRIMUS_TEST_COMPLETE="1").returncode == 0
    assert pytest_in(tmp_path, tests.format("not installed: podman")).returncode == 0
    done = pytest_in(tmp_path, tests.format("not installed: podman"), PRIMUS_TEST_COMPLETE="1")
    assert done.returncode == 1
    assert "SKIPPED 1 tests, such as test_it.py::test_it: not installed: podman." in done.stdout
    whole = pytest_in(
        tmp_path, "pytest.skip('not installed: podman', allow_module_level=True)", PRIMUS_TEST_COMPLETE="1"
    )
    assert whole.returncode == 1
    failing = "def test_it():\n    pytest.xfail('not today')\n"
    assert pytest_in(tmp_path, failing, PRIMUS_TEST_COMPLETE="1").returncode == 1


@pytest.mark.full
def test_a_reason_does_not_count_in_the_part_that_is_there_to_run_the_test(tmp_path: Path) -> None:
    tests = "@pytest.mark.skip(reason='no GPU')\ndef test_it(): ...\n"
    environ = {"PRIMUS_TEST_COMPLETE": "1", "PRIMUS_TEST_PART": "gpu"}
    assert pytest_in(tmp_path, tests, **environ).returncode == 1
    assert pytest_in(tmp_path, tests, **{**environ, "PRIMUS_TEST_PART": "other"}).returncode == 0


def test_each_part_that_a_reason_excepts_is_there() -> None:
    rows = tomllib.loads((ROOT / "tests/skips.toml").read_text())["skip"]
    parts = {part.name for part in (*suite.parts_with_tests((), full=True), *suite.other_parts())}
    assert {name for row in rows for name in row.get("except", ())} <= parts


def test_a_package_that_was_installed_before_its_entry_points_changed_is_named(tmp_path: Path) -> None:
    assert outdated(ROOT / "packages") == []
    shutil.copytree(ROOT / "packages/primus-core", tmp_path / "primus-core", ignore=shutil.ignore_patterns("src"))
    assert outdated(tmp_path) == []
    with (tmp_path / "primus-core/pyproject.toml").open("a") as file:
        file.write('[project.entry-points."primus.tasks"]\nnew = "primus_core:NEW"\n')
    assert outdated(tmp_path) == ["primus-core"]


def test_whatever_an_environment_needs_is_locked() -> None:
    """Else `hatch run lock` was forgotten."""
    for name, env in lock.environments().items():
        pinned = newest.versions(lock.LOCKS / f"{name}.txt")
        for line in lock.requirements(env):
            need = Requirement(line)
            versions = pinned[canonicalize_name(need.name)]
            assert any(map(need.specifier.contains, versions)), f"{name}: {line}: {versions}"
