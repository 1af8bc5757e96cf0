"""The task `run`: any Python file, as torchrun or python would run it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Run

pytestmark = pytest.mark.whole

PROGRAM = """
import os, sys
import helper
print(__name__, os.environ["RANK"], os.environ["WORLD_SIZE"], sys.argv[1:], helper.NAME, flush=True)
sys.exit(9 if "--die" in sys.argv else 0)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "helper.py").write_text("NAME = 'beside it'\n")
    return "src/train.py"


@pytest.mark.full
@pytest.mark.torch
def test_each_rank_runs_the_file_as_its_main_program_with_its_words_as_they_are(
    primus: Run, program: str, tmp_path: Path
) -> None:
    words = ("--lr", "3 e", "--", "-x", "--help")
    done = primus("direct", "--", "run", program, *words, env={"GPUS_PER_NODE": "2"})
    assert done.returncode == 0, done.stderr
    [run] = tmp_path.glob("output/train_*")
    for rank in (0, 1):
        said = (run / f"logs/rank_{rank}.log").read_text()
        assert f"__main__ {rank} 2 {[*words]!r} beside it" in said


@pytest.mark.full
def test_its_exit_code_is_the_commands(primus: Run, program: str) -> None:
    assert primus("direct", "--single", "--", "run", program, "--die").returncode == 9


@pytest.mark.full
def test_its_own_help_is_its_own(primus: Run, program: str) -> None:
    assert "['--help']" in primus("direct", "--single", "--", "run", program, "--help").stdout
    assert "primus direct -- run train.py --lr 3e-4" in primus("direct", "--", "run", "--help").stdout


def test_a_file_that_is_not_there_is_refused(primus: Run, program: str, tmp_path: Path) -> None:
    refused = primus("direct", "--", "run", "src/tarin.py")
    assert refused.returncode == 2
    assert f"looked for {tmp_path}/src/tarin.py" in refused.stderr
    assert not (tmp_path / "output").exists()


def test_it_goes_to_the_workspace_of_primus_yaml(primus: Run, program: str, tmp_path: Path) -> None:
    (tmp_path / "primus.yaml").write_text("workspace: ./runs\n")
    assert f"# directory  {tmp_path}/runs/train_" in primus("direct", "--dry-run", "--", "run", program).stdout


@pytest.mark.parametrize("runtime", ["direct", "slurm sbatch -N 2", "container --image docker.io/a/b:c"])
def test_words_of_primus_behind_the_file_are_named_before_it_starts(primus: Run, program: str, runtime: str) -> None:
    said = primus("--dry-run", *runtime.split(), "--", "run", program, "--dry-run", "--hang-timeout", "6").stdout
    assert "# note       --dry-run behind the file is an argument of the file;" in said
    assert "to end ranks that hang: primus direct --hang-timeout 6 -- run ..." in said


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (("--hang-timeout=10m",), "--hang-timeout 10m -- run"),
        (("--max-restarts", "--lr"), "--max-restarts VALUE -- run"),
        (("--grace-period", "30"), "--grace-period 30 -- run"),
        (("--single", "x"), "--single -- run"),
        (("--numa",), "--numa -- run"),
        (("--number", "6", "-m"), ""),
    ],
)
def test_options_of_direct_behind_a_file_or_module_are_named(
    primus: Run, program: str, words: tuple[str, ...], ours: str
) -> None:
    for what in ((program,), ("-m", "timeit")):
        said = primus("--dry-run", "direct", "--", "run", *what, *words).stdout
        assert ("# note " in said) == bool(ours)
        assert f"primus direct {ours}" in said or not ours


def test_a_misspelt_file_is_answered_with_the_nearest_and_an_experiment_with_what_trains_it(
    primus: Run, program: str, tmp_path: Path
) -> None:
    near = program.replace("train", "tarin")
    assert f"did you mean '{program}'?" in primus("direct", "--", "run", near).stderr
    (tmp_path / "exp.yaml").write_text("modules: {}")
    refused = primus("direct", "--", "run", "exp.yaml", "steps=1")
    assert "'exp.yaml' is not a Python file" in refused.stderr
    assert "fix: primus direct -- train pretrain --config exp.yaml steps=1" in refused.stderr
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("runtime", ["slurm sbatch -N 2", "container --image docker.io/a/b:c"])
def test_a_file_that_is_only_there_where_it_will_run_is_noted(
    primus: Run, program: str, tmp_path: Path, runtime: str
) -> None:
    near = program.replace("train", "tarin")
    said = primus("--dry-run", *runtime.split(), "--", "run", near).stdout
    assert f"# note       there is no file '{tmp_path / near}' on this machine (did you mean '{program}'?): the" in said


@pytest.mark.parametrize("runtime", [["direct"], ["slurm", "srun", "-N", "2"]])
def test_a_script_of_a_shell_is_refused_wherever_it_would_run(primus: Run, tmp_path: Path, runtime: list[str]) -> None:
    (tmp_path / "job.sh").write_text("python train.py\n")
    refused = primus(*runtime, "--", "run", "job.sh")
    assert (refused.returncode, "'job.sh' is not a Python file" in refused.stderr) == (2, True), refused.stderr


def test_a_module_runs_as_with_python_m_from_the_folder_of_its_package(
    primus: Run, program: str, tmp_path: Path
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/__init__.py").touch()
    (tmp_path / "pkg/train.py").write_text("import sys\nprint(__name__, __package__, sys.argv[1:])\n")
    done = primus("direct", "--single", "--", "run", "-m", "pkg.train", "--lr", "3 e", "-m")
    assert done.returncode == 0, done.stderr
    assert "__main__ pkg ['--lr', '3 e', '-m']" in done.stdout
    assert len([*tmp_path.glob("output/train_*")]) == 1


def test_a_module_that_python_cannot_run_is_refused_and_nothing_is_imported(
    primus: Run, program: str, tmp_path: Path
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/__init__.py").write_text("raise SystemExit('imported')\n")
    for module in ("pkg", "pkg.trian", "nowhere.train"):
        refused = primus("direct", "--", "run", "-m", module)
        assert (refused.returncode, f"there is no module '{module}'" in refused.stderr) == (2, True), refused.stderr
    assert primus("direct", "--single", "--dry-run", "--", "run", "-m", "json.tool").returncode == 0


def test_a_rank_that_was_told_to_end_from_outside_says_so(primus: Run, tmp_path: Path) -> None:
    program = "import os, signal, sys\nsignal.signal(15, lambda *_: sys.exit(143))\nos.kill(os.getpid(), 15)\n"
    (tmp_path / "t.py").write_text(program)
    done = primus("direct", "--single", "--", "run", "t.py")
    assert done.returncode == 143, done.stderr
    assert "SIGTERM: this process was told to end" in done.stderr
    assert "exit code 143" not in done.stderr, "it is no exit of its own"
