"""A fork of the fork server is like a new process: with its own environment, folder, output and end."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import ROOT, wait_until
from tests.forkserver import Ended, ForkServer, torchrun

Forks = Callable[..., list[Ended]]


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(("decimal",), {"DECIMALS": "7"}) as server:
        yield server


@pytest.fixture
def run(server: ForkServer, clean_environ: dict[str, str], tmp_path: Path) -> Forks:
    """`run(code, {"NAME": "value"}, {}, ...)` runs a program as two forks."""

    def run(code: str, *environs: dict[str, str], argv: tuple[str, ...] = (), timeout: float = 60) -> list[Ended]:
        (tmp_path / "program.py").write_text(textwrap.dedent(code))
        merged = [{**clean_environ, **environ} for environ in environs or ({},)]
        return server.run(tmp_path / "program.py", merged, cwd=tmp_path, argv=argv, timeout=timeout)

    return run


def test_each_fork_has_its_own_whole_environment(run: Forks) -> None:
    code = "import os, sys; os.system('echo $ME $OTHER'); sys.stdout.write(os.environ['ME'] + ' '.join(os.environ))"
    first, second = run(code, {"ME": "first", "OTHER": "x"}, {"ME": "second"})
    assert first.out.startswith("first x\nfirst")
    assert second.out.startswith("second\nsecond")
    assert "OTHER" not in second.out
    assert "DECIMALS" in second.out


def test_a_fork_inherits_nothing_from_the_one_before(run: Forks) -> None:
    run("import os, builtins; os.environ['LEFT'] = '1'; builtins.left = 1; os.chdir('/')", {"LEFT": "0"})
    (then,) = run("import os, builtins; print(os.environ.get('LEFT'), hasattr(builtins, 'left'), os.getcwd() == '/')")
    assert then.out == "None False False\n"


def test_modules_are_there_and_the_program_is_main_with_its_words(run: Forks, tmp_path: Path) -> None:
    (ended,) = run("import sys; print('decimal' in sys.modules, __name__, sys.argv)", argv=("a", "b c"))
    assert ended.out == f"True __main__ {[str(tmp_path / 'program.py'), 'a', 'b c']}\n"


def test_a_module_is_found_in_its_folder_and_in_its_pythonpath(
    server: ForkServer, clean_environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "mine_too.py").write_text("where = 'PYTHONPATH'")
    (tmp_path / "mine.py").write_text(
        "import os, sys, mine_too; print(mine_too.where, os.getcwd(), sys.argv[1:], __name__)"
    )
    environ = {**clean_environ, "PYTHONPATH": str(tmp_path / "more")}
    (ended,) = server.run("mine", [environ], cwd=tmp_path, argv=["x"])
    assert ended == Ended(0, f"PYTHONPATH {tmp_path} ['x'] __main__\n", "")


def test_output_is_kept_apart_and_whole(run: Forks) -> None:
    code = """
        import os, sys
        print(os.environ["ME"] * 100_000, flush=True)
        print("error of", os.environ["ME"], file=sys.stderr)
        os.system("echo of a child")
        """
    first, second = run(code, {"ME": "1"}, {"ME": "2"})
    assert first.out == "1" * 100_000 + "\nof a child\n"
    assert second.out == "2" * 100_000 + "\nof a child\n"
    assert (first.err, second.err) == ("error of 1\n", "error of 2\n")


ENDS = pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('a reason')", 1),
        ("1 / 0", 1),
        ("import os; os._exit(4)", 4),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM),
        ("import os; os.kill(os.getpid(), 2)", -signal.SIGINT),
    ],
)


@ENDS
def test_it_ends_as_a_new_python_does(run: Forks, tmp_path: Path, code: str, expected: int) -> None:
    (ended,) = run(code)
    alone = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, check=False)
    assert ended.code == alone.returncode == expected
    assert ended.err.splitlines()[-1:] == alone.stderr.splitlines()[-1:]


def test_each_fork_has_its_own_exit_code(run: Forks) -> None:
    code = "import os; raise SystemExit(int(os.environ['ME']))"
    assert [ended.code for ended in run(code, {"ME": "0"}, {"ME": "5"}, {"ME": "0"})] == [0, 5, 0]


def test_what_a_program_registered_for_its_end_runs(run: Forks) -> None:
    code = """
        import atexit, sys, threading, time
        atexit.register(print, "at exit")
        threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
        sys.exit(2)
        """
    assert run(code) == [Ended(2, "thread\nat exit\n", "")]


def test_signals_are_as_in_a_new_python(run: Forks, tmp_path: Path) -> None:
    code = "import signal; print([(s, str(signal.getsignal(s))) for s in signal.valid_signals()], signal.pthread_sigmask(0, []))"
    (ended,) = run(code)
    alone = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, check=True)
    assert _without_addresses(ended.out) == _without_addresses(alone.stdout)


def _without_addresses(text: str) -> str:
    return " ".join(word for word in text.split() if not word.startswith("0x"))


@pytest.mark.full
def test_a_program_that_hangs_is_ended_and_said_with_what_it_wrote(run: Forks) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600 * int(os.environ['ME']))"
    with pytest.raises(AssertionError, match=r"did not end in 4 s: \[1\](?s:.*)exit code -9\n\d+") as caught:
        run(code, {"ME": "0"}, {"ME": "1"}, timeout=4)
    assert not Path("/proc", str(caught.value).split()[-1]).exists()
    assert run("print('next')") == [Ended(0, "next\n", "")]


@pytest.mark.full
def test_what_a_program_leaves_running_is_ended_and_said(run: Forks, tmp_path: Path) -> None:
    code = """
        import os, time
        if not os.fork():
            os.setsid()
            if not os.fork():
                open("pid", "w").write(str(os.getpid()))
                time.sleep(600)
        """
    with pytest.raises(AssertionError, match="left processes behind"):
        run(code, timeout=2)
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


@pytest.mark.parametrize("environ", [{"DECIMALS": "8"}, {"PYTHONHASHSEED": "1"}])
def test_a_variable_that_comes_too_late_is_refused(run: Forks, environ: dict[str, str]) -> None:
    with pytest.raises(AssertionError, match=r"the fork server was started with (DECIMALS=7|PYTHONHASHSEED=None)"):
        run("", environ)


def test_a_module_that_cannot_be_imported_is_said(clean_environ: dict[str, str], tmp_path: Path) -> None:
    with ForkServer(("no_such_module",), {}) as server, pytest.raises(AssertionError, match="ended with exit code 1"):
        server.run("this", [clean_environ], cwd=tmp_path)


@pytest.mark.full
def test_the_server_and_its_forks_end_with_a_client_that_is_killed(
    tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    (tmp_path / "hang.py").write_text(
        "import os, time; open('pid', 'w').write(f'{os.getpid()} {os.getppid()}\\n'); time.sleep(600)"
    )
    code = (
        "import os; from pathlib import Path; from tests.forkserver import ForkServer\n"
        f"ForkServer((), {{}}).run('hang', [dict(os.environ)], cwd=Path({str(tmp_path)!r}))"
    )
    client = subprocess.Popen([sys.executable, "-c", code], env=clean_environ, cwd=ROOT)
    pids = tmp_path / "pid"
    wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    client.kill()
    client.wait()
    wait_until(lambda: not any(Path("/proc", pid).exists() for pid in pids.read_text().split()))


def test_torchruns_variables_are_said_for_each_rank() -> None:
    first, second = torchrun(2, {"MINE": "1"})
    assert (first["RANK"], first["LOCAL_RANK"], first["WORLD_SIZE"]) == ("0", "0", "2")
    assert (second["RANK"], second["LOCAL_RANK"], second["LOCAL_WORLD_SIZE"]) == ("1", "1", "2")
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    assert first["MINE"] == second["MINE"] == "1"
