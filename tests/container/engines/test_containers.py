"""The same commands in real containers: what comes back, what is left, who sees what."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import ROOT, Run
from tests.container.engines.conftest import DOCKER, Start, both_engines, gone
from tests.lab import images
from tests.lab.containers import IMAGE, Engine

from primus_machine.processes import descendants

pytestmark = [pytest.mark.container, pytest.mark.full]

TOKEN = f"hf_{uuid.uuid4().hex}"
"""Its own: the command lines of the whole machine are searched for it, those of another such run among them."""


def metadata(folder: Path) -> dict[str, object]:
    """How the newest run in a project is recorded."""
    return dict(json.loads((folder / "output/behave/metadata.json").read_text()))


def text_of_all_files(folder: Path) -> str:
    """All that is below a folder, links left out."""
    return "\n".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


@pytest.mark.torch
def test_a_benchmark_runs_in_a_container(primus: Run, tmp_path: Path) -> None:
    options = ("--image", IMAGE)
    inside = primus("container", *options, "--", "bench", "gemm", "-M", "64", "--duration", "0.1")
    assert inside.returncode == 0, inside.stderr
    direct = primus("direct", "--", "bench", "gemm", "-M", "64", "--duration", "0.1")
    assert inside.stdout.splitlines()[:3] == direct.stdout.splitlines()[:3]
    assert (tmp_path / "output/bench-gemm/gemm.json").exists()


@pytest.mark.parametrize("engine", [pytest.param("podman", marks=pytest.mark.smoke), pytest.param("docker", marks=DOCKER)],
                         indirect=True)  # fmt: skip
def test_words_and_exit_code_pass_through(primus: Run, project: Path) -> None:
    words = ("a b", "it's", "$(touch x)", "--", 'say "x"', "*")
    spoken = primus("container", "--", "behave", "words", *words, cwd=project)
    assert spoken.returncode == 0, spoken.stderr
    assert spoken.stdout == f"{list(words)}\n"
    assert not list(project.rglob("x"))
    assert primus("container", "--", "behave", "exit", "7", cwd=project).returncode == 7
    assert (metadata(project)["status"], metadata(project)["exit_code"]) == ("failed", 7)


@both_engines
def test_folders_with_any_name_are_seen_inside(primus: Run, project: Path) -> None:
    for name in ("with space", 'it\'s, "quoted"', "$(touch x)", "a=b"):
        folder = project / name
        folder.mkdir()
        for file in ("primus.yaml", "my_tasks.py"):
            (folder / file).write_text((project / file).read_text())
        result = primus("container", "--", "behave", "write", f"{folder}/written here", cwd=folder)
        assert result.returncode == 0, result.stderr
        assert (folder / "written here").exists()
        assert (folder / "output/behave/metadata.json").exists()
    assert not list(project.rglob("x"))


def test_a_failed_task_is_explained_once_and_recorded(primus: Run, project: Path) -> None:
    result = primus("container", "--", "behave", "raise", cwd=project)
    assert result.returncode == 1
    assert result.stderr.count("primus: worker failed") == 1
    before, *after = result.stderr.split("diagnosis: ")
    assert before.count("ValueError: the first failure") <= 2, "the traceback, and what Primus says of it"
    assert len(after) == 1
    lines = result.stderr.splitlines()
    assert lines[0].startswith("primus: run output/behave_")
    assert lines[1] == "primus: container: podman"
    known = metadata(project)["first_failure"]
    assert isinstance(known, dict)
    assert (known["rank"], known["what"]) == (0, "ValueError: the first failure")
    assert "the first failure" in (project / "output/behave/logs/rank_0.log").read_text()


@pytest.mark.parametrize(
    ("engine", "number"),
    [
        ("podman", signal.SIGINT),
        ("podman", signal.SIGTERM),
        ("podman", signal.SIGHUP),
        pytest.param("docker", signal.SIGTERM, marks=DOCKER),
    ],
    indirect=["engine"],
)
def test_a_signal_reaches_the_rank_and_its_exit_code_comes_back(
    start: Start, project: Path, engine: Engine, number: signal.Signals
) -> None:
    process = start("container", "--", "behave", "wait")
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number, errors
    expected = "SIGINT" if number == signal.SIGINT else "SIGTERM"
    assert f"rank got {expected}" in (project / "output/behave/logs/rank_0.log").read_text()
    assert metadata(project)["status"] == "interrupted"
    assert not engine.containers()


@both_engines
def test_a_closed_terminal_ends_no_run_that_was_started_with_nohup(start: Start) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start("container", "--", "behave", "wait")
    finally:
        signal.signal(signal.SIGHUP, before)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 143, errors


def test_a_rank_that_will_not_end_is_killed_after_the_grace_period(start: Start, project: Path, engine: Engine) -> None:
    with (project / "primus.yaml").open("a") as file:
        file.write("direct: {grace-period: 600}\n")
    process = start("container", "--", "direct", "--grace-period", "1", "--", "behave", "stubborn")
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 143
    assert not engine.containers()


@both_engines
def test_a_paused_container_goes_too(start: Start, engine: Engine) -> None:
    process = start("container", "--", "direct", "--grace-period", "1", "--", "behave", "wait")
    assert not engine("pause", *engine.containers()).returncode
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 143
    assert gone(engine)


@pytest.mark.parametrize(
    ("engine", "who"),
    [
        *(("podman", who) for who in ("primus", "keeper", "engine", "all")),
        *(pytest.param("docker", who, marks=DOCKER) for who in ("engine", "all")),
    ],
    indirect=["engine"],
)
def test_whoever_is_killed_the_container_goes(start: Start, engine: Engine, who: str) -> None:
    process = start("container", "--", "behave", "wait")
    [keeper] = [pid for pid in descendants(process.pid) if parent(pid) == process.pid]
    [client] = [
        pid for pid in descendants(keeper) if parent(pid) == keeper and command_line(pid).startswith(engine.name)
    ]
    chosen = {"primus": [process.pid], "keeper": [keeper], "engine": [client], "all": [process.pid, keeper, client]}
    for pid in chosen[who]:
        os.kill(pid, signal.SIGSTOP)  # so that none of them can do anything about it
    for pid in chosen[who]:
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode != 0
    assert gone(engine)


@both_engines
def test_a_container_of_somebody_else_with_the_same_name_stays(primus: Run, project: Path, engine: Engine) -> None:
    made = engine("run", "--detach", "--network", "host", "--init", "--name", "taken", IMAGE, "sleep", "600")
    assert not made.returncode, made.stderr
    refused = primus("container", "--name", "taken", "--", "behave", "exit", "0", cwd=project)
    assert refused.returncode == 3
    assert "already in use" in refused.stderr
    assert engine.containers() == ["taken"]
    engine.remove("taken")


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@both_engines
def test_files_written_inside_belong_to_the_user(primus: Run, project: Path) -> None:
    result = primus("container", "--", "behave", "write", f"{project}/written", cwd=project)
    assert result.returncode == 0, result.stderr
    for path in (
        project / "written",
        project / "output/behave/metadata.json",
        project / "output/behave/logs/rank_0.log",
    ):
        assert (path.stat().st_uid, path.stat().st_gid) == (os.getuid(), os.getgid())


@both_engines
def test_another_user_writes_the_run_and_a_home_that_are_its_own(
    clean_environ: dict[str, str], primus: Run, start: Start, project: Path, engine: Engine
) -> None:
    project.chmod(0o755)
    options = ("container", "--user", "4242:4243", "--")
    before = os.umask(0o077)
    try:
        result = primus(*options, "behave", "home", cwd=project)
    finally:
        os.umask(before)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "4242 4243 4242\n"
    home = project / "output/.home-4242"
    for path in (home / "written", project / "output/behave/logs/rank_0.log", project / "output/behave/plan.json"):
        assert (path.stat().st_uid, path.stat().st_gid) == (4242, 4243)
    assert metadata(project)["status"] == "completed"
    process = start(*options, "behave", "wait")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    assert gone(engine), "inside, Primus sees that nobody is left outside"


@pytest.mark.parametrize(
    ("engine", "how"),
    [("podman", "inherited"), ("podman", "given"), pytest.param("docker", "given", marks=DOCKER)],
    indirect=["engine"],
)
def test_a_token_is_seen_inside_and_nowhere_else(
    clean_environ: dict[str, str], start: Start, project: Path, engine: Engine, how: str, primus: Run
) -> None:
    clean_environ.update({"HF_TOKEN": TOKEN} if how == "inherited" else {})
    options = () if how == "inherited" else ("-e", f"HF_TOKEN={TOKEN}")
    result = primus("container", *options, "--", "behave", "value", "HF_TOKEN", cwd=project, env=clean_environ)
    assert result.stdout == f"the value has {len(TOKEN)} letters: <secret>\n", result.stderr
    process = start("container", *options, "--", "behave", "wait")
    shown = "".join(command_line(int(name)) for name in os.listdir("/proc") if name.isdigit())
    [name] = engine.containers()
    told = json.loads(engine("inspect", name).stdout)[0]
    process.terminate()
    process.communicate(timeout=120)
    assert TOKEN not in shown
    assert TOKEN not in json.dumps(
        [told["Args"], told["Config"]["Cmd"], told["Config"].get("CreateCommand"), told["Mounts"]]
    )
    assert TOKEN not in text_of_all_files(project)


@both_engines
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--image", "localhost/no-such-image:1"), "no-such-image"),
        (("--mount", "type=bind,source=/no/such/source,target=/x"), "/no/such/source"),
        (("--no-such-option",), "unknown flag: --no-such-option"),
    ],
)
def test_what_the_engine_cannot_do_is_exit_3_with_its_own_words(
    primus: Run, project: Path, engine: Engine, options: tuple[str, ...], said: str
) -> None:
    result = primus("container", *options, *(() if "--image" in options else ("--image", IMAGE)), "--", "behave",
                    "exit", "0", cwd=project)  # fmt: skip
    assert result.returncode == 3
    assert said in result.stderr
    assert f"primus: error: container: {engine.name} could not start the command (exit code 125)" in result.stderr
    assert metadata(project)["status"] == "failed"
    assert metadata(project)["exit_code"] == 3


def test_an_entrypoint_that_swallows_the_task_is_no_success(primus: Run, project: Path) -> None:
    result = primus("container", "--entrypoint", "/bin/echo", "--", "behave", "exit", "0", cwd=project)
    assert result.returncode == 3
    assert "the command never started" in result.stderr
    assert "fix: run it without an entrypoint\n" in result.stderr
    assert (metadata(project)["status"], metadata(project)["exit_code"]) == ("failed", 3)


def test_a_run_in_a_container_is_one_whole_run(primus: Run, project: Path) -> None:
    assert primus("container", "--", "behave", "exit", "0", cwd=project).returncode == 0
    [run] = [path for path in (project / "output").iterdir() if not path.is_symlink()]
    assert (metadata(project)["run_id"], metadata(project)["runtime"]) == (run.name, "container")
    assert json.loads((run / "layers/container.json").read_text())["runtime"] == "container"
    listed = json.loads(primus("runs", "list", "--json", cwd=project).stdout)
    assert [(row["name"], row["status"]) for row in listed] == [(run.name, "completed")]
    shown = primus("runs", "show", run.name, cwd=project)
    assert shown.returncode == 0, shown.stderr
    checked = primus("replay", run.name, "--check", cwd=project)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    again = primus("replay", run.name, "container", "--image", IMAGE, cwd=project)
    assert again.returncode == 0, again.stderr
    assert metadata(project)["parent"] == {"run_id": run.name, "directory": str(run)}


def test_a_check_from_outside_a_container_compares_nothing_that_the_image_has(primus: Run, project: Path) -> None:
    assert primus("container", "--", "behave", "exit", "0", cwd=project).returncode == 0
    check, note = ("replay", "latest", "--check"), "  note      packages: of the image: recorded → not compared"
    for runtime, is_told in (("container", True), ("direct", False)):
        said = primus(*check, runtime, cwd=project, env={"OF_THE_HOST": "1"}).stdout
        assert (note in said, "packages (" not in said) == (is_told, is_told), said
        assert "OF_THE_HOST" not in said


def test_between_direct_and_container_only_the_runtime_differs(primus: Run, project: Path) -> None:
    env = {"NCCL_DEBUG": "INFO", "ONLY_HERE": "1"}
    for runtime in ("direct", "container"):
        assert primus(runtime, "--env", "A=1", "--", "behave", "exit", "0", cwd=project, env=env).returncode == 0
        time.sleep(1)
    names = sorted(path.name for path in (project / "output").iterdir() if not path.is_symlink())
    found = json.loads(primus("runs", "diff", *names, "--json", cwd=project).stdout)
    rows = [(row["category"], row["name"], row["before"], row["after"]) for row in found["differences"]]
    assert rows == [("config", "runtime", "direct", "container")]


@pytest.fixture(scope="session")
def with_primus(engines: Callable[[str], Engine]) -> str:
    """An image that has Primus."""
    return engines("podman").make_image("localhost/primus-inside:1", images.add_primus, base=IMAGE)


@pytest.fixture(scope="session")
def with_another(engines: Callable[[str], Engine]) -> str:
    """An image with a Primus of another protocol."""
    own = engines("podman")
    return own.make_image("localhost/primus-other:1", lambda root: images.add_command(root, "echo 999"), base=IMAGE)


@pytest.mark.parametrize("choice", ["image", "auto"])
def test_the_images_own_primus_runs_where_it_fits(primus: Run, project: Path, with_primus: str, choice: str) -> None:
    result = primus("container", "--image", with_primus, "--primus", choice, "--", "behave", "exit", "7", cwd=project)
    assert result.returncode == 7, result.stderr
    dumped = (project / "output/behave/env/primus_env_dump.txt").read_text()
    assert "PYTHONPATH=/opt/primus" in dumped


def test_this_machines_primus_is_carried_in_where_it_is_asked_for(primus: Run, project: Path, with_primus: str) -> None:
    result = primus("container", "--image", with_primus, "--primus", "host", "--", "behave", "exit", "7", cwd=project)
    assert result.returncode == 7, result.stderr
    assert "/opt/primus" not in (project / "output/behave/env/primus_env_dump.txt").read_text()


def test_a_primus_that_does_not_fit_is_passed_over_or_refused(primus: Run, project: Path, with_another: str) -> None:
    options = ("--image", with_another)
    task = ("--", "behave", "exit", "7")
    assert primus("container", *options, *task, cwd=project).returncode == 7
    refused = primus("container", *options, "--primus", "image", *task, cwd=project)
    assert refused.returncode == 3
    assert "the image's Primus speaks protocol 999" in refused.stderr
    assert "fix: leave out --primus image" in refused.stderr


def test_an_image_without_primus_is_refused_where_its_own_is_wanted(primus: Run, project: Path) -> None:
    refused = primus("container", "--primus", "image", "--", "behave", "exit", "7", cwd=project)
    assert refused.returncode == 3
    assert "the image has no Primus on its PATH" in refused.stderr
    assert "no Primus" in str(metadata(project)["first_failure"])


def python_of(engine: Engine, image: str) -> str:
    """The version of an image's own Python, as `3.11`."""
    code = "import sys; print(*sys.version_info[:2], sep='.')"
    return engine("run", "--rm", "--network", "host", image, "python3", "-c", code).stdout.strip()


def test_the_images_python_gets_this_machines_primus_where_it_has_a_framework(
    primus: Run, project: Path, engine: Engine
) -> None:
    image = engine.make_image("localhost/primus-framework:1", images.add_framework, base=IMAGE)
    if (version := python_of(engine, image)) != f"{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip(f"compiled packages of this Python do not fit Python {version}, which the image has")
    result = primus("container", "--image", image, "--", "behave", "framework", cwd=project)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "torch of the image, in /usr/bin/python3\n"


def test_settings_of_the_home_folder_and_of_config_hold_inside(primus: Run, project: Path, tmp_path: Path) -> None:
    for name, text in (("home", "{env: [OF_HOME=1, ~/home.env]}"), ("site", "{single: true}")):
        folder = tmp_path.parent / f"{tmp_path.name}-{name}"
        folder.mkdir()
        (folder / f".{name}.yaml").write_text(f"direct: {text}\n")
    home, site = (tmp_path.parent / f"{tmp_path.name}-{name}" for name in ("home", "site"))
    (home / ".home.yaml").rename(home / ".primus.yaml")
    (home / "home.env").write_text("OF_FILE=yes\n")
    result = primus("--config", f"{site}/.site.yaml", "container", "--", "behave", "value", "OF_FILE", cwd=project,
                    env={"HOME": str(home)})  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout == "the value has 3 letters: yes\n"
    assert json.loads((project / "output/behave/plan.json").read_text())["worker"]["launcher"] == "single"


@both_engines
def test_clean_removes_containers_that_dead_runs_left_and_no_others(
    primus: Run, project: Path, engine: Engine, start: Start
) -> None:
    running = start("container", "--", "behave", "wait")
    attended = engine.containers()
    labels = {"primus.run": "x", "primus.host": os.uname().nodename, "primus.directory": "/gone"}
    # Their own names: a container whose name is on a command line anywhere here counts as attended.
    stale, elsewhere, foreign = (f"{kind}-{uuid.uuid4().hex}" for kind in ("stale", "elsewhere", "foreign"))
    for name, own in ((stale, labels), (elsewhere, {**labels, "primus.host": "another"}), (foreign, {})):
        words = [word for key, value in own.items() for word in ("--label", f"{key}={value}")]
        made = engine("run", "--detach", "--network", "host", "--init", "--name", name, *words, IMAGE, "sleep", "600")
        assert not made.returncode, made.stderr
    dry = primus("container", "--clean", "--dry-run", cwd=project)
    assert dry.stdout.startswith(f"would remove {stale} "), dry.stderr
    assert len(engine.containers()) == 4
    cleaned = primus("container", "--clean", cwd=project)
    assert (cleaned.returncode, len(cleaned.stdout.splitlines())) == (0, 1), cleaned.stderr
    assert cleaned.stdout.startswith(f"removed {stale} ")
    assert sorted(engine.containers()) == sorted([*attended, elsewhere, foreign])
    running.terminate()
    running.communicate(timeout=120)
    engine.remove(elsewhere, foreign)


@pytest.mark.torch
def test_the_quickstart_trains_in_a_container_as_it_does_outside(primus: Run, tmp_path: Path) -> None:
    words = ("train", "pretrain", "--config", str(ROOT / "examples/quickstart.yaml"), "training.steps=3")
    losses = []
    for runtime in (("direct",), ("container", "--image", IMAGE)):
        result = primus(*runtime, "--", *words, timeout=500)
        assert result.returncode == 0, result.stderr
        newest = max(
            (path for path in (tmp_path / "output").iterdir() if path.is_symlink()), key=lambda p: p.lstat().st_mtime
        )
        losses.append([json.loads(line)["loss"] for line in (newest / "metrics.jsonl").read_text().splitlines()])
    assert losses[0]
    assert losses[0] == losses[1]
