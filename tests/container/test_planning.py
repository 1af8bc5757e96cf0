"""What `primus container` would start, as its dry run shows it: no engine is needed for that."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.conftest import ROOT, Run
from tests.machine import machines

from primus_container import images, runtime
from primus_container.mounts import Mount, mounts
from primus_core import variables
from primus_core.testing import facts_of
from primus_machine.captures import capture as machine_capture
from primus_machine.variables import OUTER, RUN_DIR

TASK = ("--", "behave", "exit", "0")
TOKEN = "hf_" + "a1B2c3D4" * 4
JOB = {"SLURM_JOB_ID": "7", "SLURM_NODEID": "0", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
Planned = Callable[..., list[str]]


@pytest.fixture
def argv(primus: Run, project: Path) -> Planned:
    """`argv(*options)`: the engine's command line for a task with these options."""

    def planned(
        *options: str, task: Sequence[str] = TASK, cwd: Path = project, env: dict[str, str] | None = None
    ) -> list[str]:
        given = ("--image", "IMG", *options) if "--image" not in options else options
        result = primus("container", "--dry-run", "--json", *given, *task, cwd=cwd, env=env)
        assert result.returncode == 0, result.stderr
        return list(json.loads(result.stdout)["steps"][0]["argv"])

    return planned


def values(words: list[str], flag: str) -> list[str]:
    """What stands behind each `flag`, up to the image."""
    end = words.index("IMG")
    return [words[i + 1] for i, word in enumerate(words[:end]) if word == flag]


def config(folder: Path, text: str) -> None:
    """A `primus.yaml` with these lines beside the project's own."""
    (folder / "primus.yaml").write_text(f"plugins: [./my_tasks.py]\n{text}", encoding="utf-8")


def test_the_packaged_defaults_suit_training(argv: Planned) -> None:
    words = argv("--engine", "podman")  # the default is one that is here
    assert words[:3] == ["podman", "run", "--rm"]
    assert (values(words, "--network"), values(words, "--ipc")) == (["host"], ["host"])
    assert {"memlock=-1", "stack=67108864"} == set(values(words, "--ulimit"))
    assert {"seccomp=unconfined", "label=disable"} == set(values(words, "--security-opt"))
    assert values(words, "--cap-add") == ["SYS_PTRACE"]
    assert values(words, "--log-driver") == ["none"]
    assert not values(words, "--shm-size"), "with ipc=host, /dev/shm is the machine's"


def test_what_is_given_wins_over_a_default_or_adds_to_it(argv: Planned) -> None:
    words = argv("--network", "none", "--ipc", "private", "--shm-size", "8g", "--ulimit", "memlock=1024", "--cap-add",
                 "SYS_ADMIN", "--security-opt", "seccomp=/p.json", "--security-opt=label=type:x", "--device", "/dev/fuse", "--log-driver", "journald")  # fmt: skip
    assert (values(words, "--network"), values(words, "--ipc")) == (["none"], ["private"])
    assert (values(words, "--shm-size"), values(words, "--log-driver")) == (["8g"], ["journald"])
    assert values(words, "--ulimit") == ["stack=67108864", "memlock=1024"]
    assert values(words, "--security-opt") == ["label=disable", "seccomp=/p.json", "label=type:x"]
    assert values(words, "--cap-add") == ["SYS_PTRACE", "SYS_ADMIN"]
    assert "/dev/fuse" in values(words, "--device")


def test_modules_in_the_working_folder_are_not_taken_for_those_of_the_image(
    argv: Planned, project: Path, tmp_path: Path
) -> None:
    words = argv(env={"PYTHONPATH": ""})
    entry = words[words.index("sh") : words.index("sh") + 11]  # with all that it takes before the words of the task
    python = tmp_path / "image" / "python3"
    python.parent.mkdir()
    # no variable keeps a Python before 3.11 from importing what lies in the working folder
    python.write_text(f'#!/bin/sh\nunset PYTHONSAFEPATH\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    for name in ("torch", "jax", "pydantic"):
        (project / f"{name}.py").write_text("open('imported', 'w').close()\n")
    environ = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    result = subprocess.run(
        [*entry, "--version"], cwd=project, env=environ, text=True, capture_output=True, check=False
    )
    assert result.stdout.startswith("primus "), result.stderr
    assert not (project / "imported").exists()


@pytest.mark.parametrize(
    ("answer", "said"),
    [("1", ""), ("2", "the image's Primus speaks protocol 2, this one protocol 1"),
     ("1 without slurm", "the image's Primus lacks the package of scheduler slurm"),
     ("", "the image has no Primus on its PATH")],
)  # fmt: skip
def test_the_images_primus_runs_where_it_fits_and_knows_the_scheduler_of_the_node(
    argv: Planned, tmp_path: Path, answer: str, said: str
) -> None:
    words = argv("--primus", "image", env=JOB)
    entry = words[words.index("sh") :]
    image = tmp_path / "image"
    image.mkdir()
    told = f'echo "$@" >> {image}/asked; test "$1" = __protocol || exit 0; echo {shlex.quote(answer)}'
    (image / "primus").write_text(f"#!/bin/sh\n{told}\n")
    (image / "primus").chmod(0o755)
    done = subprocess.run(entry, env={"PATH": f"{image}:/usr/bin:/bin"}, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr.partition("\n")[0]) == ((3, f"primus: error: {said}") if said else (0, ""))
    asked = (image / "asked").read_text().splitlines()
    assert asked[0] == "__protocol slurm"
    assert asked[1:] == ([] if said else ["direct -- behave exit 0"])


@pytest.mark.parametrize("name", ["network", "ipc", "ulimit", "security-opt", "cap-add", "log-driver"])
def test_each_default_can_be_left_out(argv: Planned, name: str, project: Path) -> None:
    assert not values(argv("--without", name), f"--{name}")
    config(project, f"container: {{{name}: null}}\n")
    assert not values(argv(), f"--{name}"), "null in a config file takes a default away, too"


def test_one_value_of_a_default_can_be_left_out(argv: Planned) -> None:
    assert values(argv("--without", "ulimit=memlock=-1"), "--ulimit") == ["stack=67108864"]


@pytest.mark.parametrize(
    ("word", "said"),
    [("nosuch", "known: cap-add, device, "), ("ulmit", "did you mean 'ulimit'?"),
     ("ulimit=memlock=1", "known: ulimit=memlock=-1, ulimit=stack=67108864")],
)  # fmt: skip
def test_a_default_that_is_none_cannot_be_left_out(primus: Run, project: Path, word: str, said: str) -> None:
    done = primus("container", "--dry-run", "--image", "IMG", "--without", word, *TASK, cwd=project)
    assert (done.returncode, f"--without {word}: there is no such default" in done.stderr) == (2, True)
    assert said in done.stderr


def test_a_default_without_a_value_here_may_be_left_out(argv: Planned, project: Path) -> None:
    config(project, "container: {cap-add: null}\n")
    assert argv("--without", "cap-add", "--without", "shm-size=64g", "--without", "gpus")


def test_a_device_with_a_question_mark_is_taken_where_it_is(argv: Planned) -> None:
    words = argv("--device", "/dev/null?", "--device", "/dev/no-such-device?")
    assert "/dev/null" in values(words, "--device")
    assert not [word for word in words if "no-such-device" in word]


def test_the_layers_of_the_system_config_reach_the_container(argv: Planned, project: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".primus.yaml").write_text("container: {image: OF_HOME, ulimit: [nofile=99], cpus: 2}\n")
    config(project, "container: {image: IMG, cap-add: [], mount: [./more:/more]}\n")
    (project / "more").mkdir()
    words = argv("--image", "IMG", env={"HOME": str(home)})
    assert values(words, "--ulimit") == ["nofile=99"]
    assert not values(words, "--cap-add")
    assert "--cpus=2" in words
    assert f"type=bind,source={project}/more,target=/more" in values(words, "--mount")


def test_options_of_the_engine_pass_verbatim_before_the_image(argv: Planned) -> None:
    words = argv("--cpus", "16", "--pids-limit=-1", "--tmpfs", "/scratch:size=1g")
    assert words[words.index("IMG") - 5 : words.index("IMG")] == [
        *("--cpus", "16", "--pids-limit=-1", "--tmpfs", "/scratch:size=1g")
    ]


@pytest.mark.parametrize(
    ("words", "engine", "meant"),
    [
        (("--shm", "1g"), "podman", "--shm-size"),
        (("--mounts=a:b",), "podman", "--mount"),
        (("--memry", "1g"), "docker", "--memory"),
        (("--gpu", "all"), "docker", "--gpus"),
        (("--gpu", "all"), "podman", ""),  # that version has none
        (("--detac",), "podman", ""),  # it is refused
        (("--no-hostname",), "podman", ""),
        (("--of-a-fork=3",), "podman", ""),
        (("--shm", "1g"), "apptainer", ""),
    ],
)
def test_an_option_that_the_engine_does_not_have_is_passed_on_with_what_was_meant(
    primus: Run, project: Path, words: tuple[str, ...], engine: str, meant: str
) -> None:
    whole = ("container", "--dry-run", "--json", "--engine", engine, "--image", "IMG", *words, *TASK)
    plan = json.loads(primus(*whole, cwd=project).stdout)
    step = plan["steps"][0]
    assert set(words) <= set(step["argv"])
    told = "\n".join([step["advice"], *plan["notes"]])
    assert told.count("did you mean") == 2 * bool(meant)
    assert told.count(f"did you mean '{meant}'?") == 2 * bool(meant)


def test_mounts_in_all_their_forms(argv: Planned, project: Path) -> None:
    data = project.parent / "data"
    data.mkdir(exist_ok=True)
    words = argv("--mount", f"{data}", "--mount", f"{data}:/a", "--mount", f"{data}:/b:ro", "--mount", ".:/c",
                 "--mount", f"type=bind,source={data},target=/d", "-v", f"{data}:/e:ro", "-v/cache:/f",
                 "--volume", str(data), "--volume=named:/g")  # fmt: skip
    found = values(words, "--mount")
    for mount in (f"{data},target={data}", f"{data},target=/a", f"{data},target=/b,readonly", f"{project},target=/c",
                  f"{data},target=/d"):  # fmt: skip
        assert f"type=bind,source={mount}" in found
    assert values(words, "--volume") == [f"{data}:/e:ro", "/cache:/f", f"{data}:{data}", "named:/g"]


@pytest.mark.parametrize(
    ("option", "what"),
    [
        (("--mount", "/no/such/folder"), "there is no file or folder '/no/such/folder'"),
        (("--mount", "/tmp:relative"), "is not understood"),
        (("--mount", "/tmp:/x:often"), "is not understood"),
        (("--volume", "/no/such/folder"), "there is no file or folder '/no/such/folder'"),
        (("--image=-it",), "--image '-it' is not an image"),
        (("--name", "n$(touch x)"), "--name 'n$(touch x)' cannot be a container's name"),
        (("--detach",), "--detach is not supported"),
        (("--clean",), "--clean takes no task"),
        (("--engine", "rocket"), "invalid choice: 'rocket'"),
    ],
)
def test_a_wrong_option_is_refused(primus: Run, project: Path, option: tuple[str, ...], what: str) -> None:
    result = primus("container", "--image", "IMG", *option, *TASK, cwd=project)
    assert result.returncode == 2
    assert what in result.stderr
    assert not (project / "output").exists()


def test_a_mount_that_would_hide_what_the_command_needs_is_refused(primus: Run, project: Path, tmp_path: Path) -> None:
    result = primus("container", "--dry-run", "--image", "IMG", "--mount", f"/var:{project}", *TASK, cwd=project)
    assert result.returncode == 2
    assert f"'{project}' is needed inside the container, but would be hidden there" in result.stderr


def test_a_folder_to_write_in_is_mounted_over_one_to_read() -> None:
    asked = [Mount("/data", "/data", read_only=True)]
    assert mounts(asked, ["/data/runs"], ["/data/set"]) == [*asked, Mount("/data/runs", "/data/runs")]


def test_the_workspace_settings_and_hooks_are_seen_inside(argv: Planned, project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    (elsewhere / "hooks").mkdir(parents=True)
    (elsewhere / "site.yaml").write_text("direct: {hooks: [./hooks]}\n")
    (elsewhere / "a.env").write_text("A=1\n")
    words = argv(task=("--", "direct", "--env", f"{elsewhere}/a.env", "--hooks", f"{elsewhere}/hooks", *TASK))
    found = values(words, "--mount")
    assert f"type=bind,source={project},target={project}" in found
    for name in ("a.env", "hooks"):
        assert f"type=bind,source={elsewhere}/{name},target={elsewhere}/{name},readonly" in found


def test_what_links_lead_to_is_seen_inside(argv: Planned, project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    for name in ("hooks", "runs"):
        (elsewhere / name).mkdir(parents=True)
    (elsewhere / "hooks/01_own.sh").write_text("true\n", encoding="utf-8")
    (project / "hooks").symlink_to(elsewhere / "hooks")
    (project / "output").symlink_to(elsewhere / "runs")
    found = values(argv(), "--mount")
    assert f"type=bind,source={elsewhere}/hooks,target={elsewhere}/hooks,readonly" in found
    assert f"type=bind,source={elsewhere}/runs,target={elsewhere}/runs" in found


def test_what_lies_beside_a_hook_is_seen_inside(argv: Planned, tmp_path: Path) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    (elsewhere / "hooks").mkdir(parents=True)
    for name in ("01_own.sh", "library.sh"):
        (elsewhere / "hooks" / name).write_text("true\n", encoding="utf-8")
    (elsewhere / "primus.yaml").write_text("hooks: {folders: [./hooks]}\n", encoding="utf-8")
    words = argv(env={"PRIMUS_CONFIG": str(elsewhere / "primus.yaml")})
    assert f"type=bind,source={elsewhere}/hooks,target={elsewhere}/hooks,readonly" in values(words, "--mount")


def test_a_size_of_shared_memory_wins_over_the_machines_ipc(argv: Planned, project: Path) -> None:
    words = argv("--shm-size", "16g")
    assert (values(words, "--shm-size"), values(words, "--ipc")) == (["16g"], [])
    config(project, "container: {shm-size: [32g]}\n")
    words = argv()
    assert (values(words, "--shm-size"), values(words, "--ipc")) == (["32g"], [])


def test_a_size_of_shared_memory_and_the_machines_ipc_contradict_each_other(primus: Run, project: Path) -> None:
    words = ("container", "--image", "IMG", "--shm-size", "16g", "--ipc", "host", *TASK)
    refused = primus(*words, cwd=project)
    assert refused.returncode == 2
    assert "--shm-size 16g contradicts --ipc host" in refused.stderr
    assert not (project / "output").exists()


def test_a_mount_of_the_nodes_is_not_looked_for_on_the_submitting_host(primus: Run, project: Path) -> None:
    words = ("container", "--image", "IMG", "--mount", "/only/on/nodes:/data", "-v", "/scratch-of-nodes")
    assert primus("slurm", "--dry-run", "sbatch", "--", *words, *TASK, cwd=project).returncode == 0
    refused = primus(*words, *TASK, cwd=project)
    assert refused.returncode == 2
    assert "there is no file or folder '/only/on/nodes'" in refused.stderr
    assumed = primus("slurm", "--dry-run", "--assume-host", "MI300X", "srun", "--", *words, *TASK, cwd=project)
    assert assumed.returncode == 0, assumed.stderr


def test_amd_gpus_of_another_machine_are_planned(argv: Planned, tmp_path: Path) -> None:
    words = argv("--assume-host", str(capture(tmp_path, machines.amd("MI300X"))))
    assert {"/dev/kfd", "/dev/dri"} <= set(values(words, "--device"))
    assert values(words, "--group-add") == ["video", "render"]


@pytest.mark.parametrize(("engine", "gpus"), [("podman", "--device nvidia.com/gpu=all"), ("docker", "--gpus all")])
def test_nvidia_gpus_come_with_nvidias_runtime(argv: Planned, tmp_path: Path, engine: str, gpus: str) -> None:
    words = argv("--engine", engine, "--assume-host", str(capture(tmp_path, machines.nvidia("H100 SXM"))))
    assert gpus in " ".join(words)
    assert "/dev/kfd" not in words


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("direct", "--", "container", "--image", "I", *TASK), "'container' cannot run inside 'direct'"),
        (("container", "--image", "I", "--", "container", "--image", "J", *TASK), "cannot run inside 'container'"),
        (
            ("container", "--image", "I", "--", "direct", "--", "container", "--image", "J", *TASK),
            "segment 3: 'container' cannot run inside 'direct'",
        ),
        (("container", *TASK), "--image is missing"),
        (("container", "--image", "I"), "needs a task"),
        (
            ("container", "--image", "I", "--", "direct", "--wrong", *TASK),
            "segment 2 (direct): unknown option '--wrong'",
        ),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(
    primus: Run, project: Path, words: tuple[str, ...], what: str
) -> None:
    result = primus("--dry-run", *words, cwd=project)
    assert result.returncode == 2
    assert what in result.stderr
    assert not (project / "output").exists()


def test_a_dry_run_shows_each_hop_and_needs_no_engine(primus: Run, project: Path) -> None:
    result = primus("container", "--image", "IMG", "--dry-run", "--", "direct", "--env", "A=1", *TASK, cwd=project,
                    env={"PATH": "/nowhere"})  # fmt: skip
    assert result.returncode == 0, result.stderr
    outer, inner = result.stdout.split("# --- inside container, there:\n")
    assert " podman run --rm --name primus-" in outer
    assert "direct --env A=1 -- behave exit 0" in outer
    assert " -m primus_core.programs.rank " in inner
    assert all(line.startswith("#") for line in inner.splitlines())
    assert not (project / "output").exists()


def test_the_plan_as_json_holds_the_plans_of_all_layers(primus: Run, project: Path) -> None:
    result = primus("container", "--image", "IMG", "--dry-run", "--json", *TASK, cwd=project)
    data = json.loads(result.stdout)
    assert (data["runtime"], [plan["runtime"] for plan in data["inner_plans"]]) == ("container", ["direct"])
    assert data["place"] == {**data["inner_plans"][0]["place"]}


def test_apptainer_gets_its_own_command_line(argv: Planned, project: Path, tmp_path: Path) -> None:
    there = str(capture(tmp_path, machines.amd("MI300X")))
    words = argv("--engine", "apptainer", "--assume-host", there, "-v", "/srv:/data", "--fakeroot", "-e", "PATH=/opt")
    own, inside = words[: words.index("IMG")], words[words.index("IMG") + 1 :]
    assert own[:4] == ["apptainer", "exec", "--no-eval", "--rocm"]
    assert own[4:8] == ["--bind", "/srv:/data", "--mount", f"type=bind,source={project},target={project}"]
    assert own[-3:] == ["--pwd", str(project), "--fakeroot"]
    assert "PATH=/opt" in own
    assert inside[:2] == ["sh", "-c"]
    assert {"--name", "--network", "--ulimit", "--volume"}.isdisjoint(own)


def test_options_that_apptainer_lacks_are_named_in_a_note(primus: Run, project: Path) -> None:
    words = ("container", "--dry-run", "--engine", "apptainer", "--image", "IMG")
    shown = primus(*words, "--ipc", "private", "--ulimit", "memlock=1", *TASK, cwd=project).stdout
    assert "apptainer ignores --ipc, --ulimit: it shares the network, devices and groups of the host" in shown
    assert "ignores" not in primus(*words, *TASK, cwd=project).stdout, "the packaged defaults need no note"


def test_the_command_line_of_apptainer_is_as_recorded(argv: Planned, project: Path, tmp_path: Path) -> None:
    there = str(capture(tmp_path, machines.amd("MI300X")))
    words = argv(
        "--engine", "apptainer", "--primus", "image", "--assume-host", there, "--mount", "/tmp:/data:ro", "-e", "A=b c",
        env={"XDG_CACHE_HOME": f"{project}/cache"},
    )  # fmt: skip
    outer = words[: words.index("sh")]
    shown = "".join(f"{shlex.quote(word)}\n" for word in outer).replace(str(project), "PROJECT")
    shown = re.sub(r"_\d{4}_\d\d_\d\d_\d{6}", "_TIME", shown)
    assert shown == (Path(__file__).parent / "golden" / "apptainer.txt").read_text(encoding="utf-8")


def test_a_read_only_working_folder_has_a_workspace_to_write_in(argv: Planned, project: Path) -> None:
    found = values(argv("--mount", ".:ro"), "--mount")
    assert f"type=bind,source={project},target={project},readonly" in found
    assert f"type=bind,source={project}/output,target={project}/output" in found
    assert f"type=bind,source={project},target={project}" not in found


AWKWARD = ("a b", "it's", 'say "x"', "$(touch x)", "`touch x`", "a;touch x", "*", "--", "a\nb", "ü")


def test_every_word_arrives_verbatim_and_nothing_is_executed(argv: Planned, project: Path) -> None:
    folder = project / 'with space "quoted", it\'s $(touch x)'
    folder.mkdir()
    words = argv("--label", "x=$(touch x)", "--mount", str(folder),
                 "--env", "AWKWARD=$(touch x)", task=("--", "behave", "talk", "0", *AWKWARD))  # fmt: skip
    assert words[-len(AWKWARD) :] == list(AWKWARD)
    assert "x=$(touch x)" in words
    [mount] = [value for value in values(words, "--mount") if "touch" in value]
    quoted = str(folder).replace('"', '""')
    assert mount == f'type=bind,"source={quoted}","target={quoted}"'
    assert not list(project.rglob("x"))


def test_a_dry_run_can_be_pasted(primus: Run, project: Path) -> None:
    result = primus("container", "--image", "IMG", "--dry-run", "--", "behave", "talk", "0", *AWKWARD, cwd=project)
    line = result.stdout.split("# step: container\n")[1].split("# --- inside")[0]
    assert shlex.split(line)[-len(AWKWARD) :] == list(AWKWARD)


@pytest.mark.parametrize("form", [("--env", "{}"), ("--env={}",), ("-e", "{}"), ("-e{}",)])
@pytest.mark.parametrize("inherited", [False, True])
def test_a_secret_stands_on_no_command_line_and_in_no_dry_run(
    primus: Run, project: Path, form: tuple[str, ...], inherited: bool
) -> None:
    given = "HF_TOKEN" if inherited else f"HF_TOKEN={TOKEN}"
    env = {"HF_TOKEN": TOKEN} if inherited else {}
    option = [word.format(given) for word in form]
    for more in ((), ("--json",)):
        result = primus("container", "--image", "IMG", *option, "--dry-run", *more, *TASK, cwd=project, env=env)
        assert result.returncode == 0, result.stderr
        assert TOKEN not in result.stdout + result.stderr
        assert "HF_TOKEN" in result.stdout


def test_a_secret_of_a_config_file_stands_on_no_command_line(primus: Run, project: Path) -> None:
    config(project, f"container: {{image: IMG, env: [HF_TOKEN={TOKEN}]}}\n")
    result = primus("container", "--dry-run", "--json", *TASK, cwd=project)
    assert result.returncode == 0, result.stderr
    assert TOKEN not in result.stdout
    assert "HF_TOKEN" in values(json.loads(result.stdout)["steps"][0]["argv"], "--env")


@pytest.mark.full
def test_a_secret_that_is_given_leaves_the_command_line(primus: Run, project: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    engine = tmp_path / "bin/podman"
    engine.parent.mkdir()
    engine.write_text(
        f'#!/bin/sh\n[ "$1" = run ] && cat /proc/$PPID/cmdline /proc/$$/cmdline > {seen} && env > {seen}.env\n'
    )
    engine.chmod(0o755)
    path = {"PATH": f"{engine.parent}:{os.environ['PATH']}"}
    result = primus("container", "--image", "IMG", "-e", f"HF_TOKEN={TOKEN}", *TASK, cwd=project, env=path)
    assert "the command never started" in result.stderr, "this engine runs nothing"
    assert TOKEN not in seen.read_text()
    assert f"HF_TOKEN={TOKEN}" in Path(f"{seen}.env").read_text(), "it comes by name, from the engine's environment"
    files = [path for path in (project / "output").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if TOKEN in path.read_text(errors="replace")]


def test_variables_that_the_engine_obeys_are_for_the_container_alone(primus: Run, project: Path) -> None:
    options = ("--env", "PATH=/opt/bin", "--env", "LD_PRELOAD=x.so", "--env", "OTHER=1")
    result = primus("container", "--image", "IMG", *options, "--dry-run", "--json", *TASK, cwd=project)
    plan = json.loads(result.stdout)
    assert {"PATH=/opt/bin", "LD_PRELOAD=x.so", "OTHER"} <= set(values(plan["steps"][0]["argv"], "--env"))
    assert {"PATH", "LD_PRELOAD"}.isdisjoint(variable["name"] for variable in plan["environment"])


def test_variables_are_forwarded_by_a_documented_list(argv: Planned) -> None:
    env = {"NCCL_DEBUG": "INFO", "HF_HOME": "/hf", "CUDA_HOME": "/usr/local/cuda", "EDITOR": "vi", "MY_OWN": "1"}
    found = set(values(argv(env=env), "--env"))
    assert {"NCCL_DEBUG", "HF_HOME", RUN_DIR, variables.RUN_ID, OUTER} <= found
    assert found.isdisjoint({"CUDA_HOME", "EDITOR", "MY_OWN"})


def test_the_documentation_lists_what_is_forwarded() -> None:
    page = re.sub(r"[`,();]", " ", (ROOT / "docs/container.md").read_text(encoding="utf-8")).split()
    proxies = {name for name in runtime.FORWARDED if "proxy" in name.lower()}
    assert set(runtime.FORWARDED) - proxies <= set(page)


def test_folders_that_forwarded_variables_name_are_seen_inside(argv: Planned, tmp_path: Path) -> None:
    cache = tmp_path.parent / f"{tmp_path.name}-cache"
    cache.mkdir()
    found = values(argv(env={"HF_HOME": str(cache), "NCCL_TOPO_FILE": "/etc/passwd", "MY_DIR": "/srv"}), "--mount")
    assert f"type=bind,source={cache},target={cache}" in found
    assert not [mount for mount in found if "/etc/passwd" in mount or "/srv" in mount]


def test_without_an_engine_it_is_exit_3_with_how_to_proceed(primus: Run, project: Path) -> None:
    for words in ((("--image", "IMG"), TASK), (("--clean",), ())):
        result = primus("container", *words[0], *words[1], cwd=project, env={"PATH": "/nowhere"})
        assert result.returncode == 3
        assert "command 'podman' not found" in result.stderr
        assert "install podman or docker" in result.stderr
    assert not (project / "output").exists()


def capture(folder: Path, tree: machines.Tree) -> Path:
    """A captured machine in a file, for `--assume-host`."""
    there = machines.write(folder / "there", machines.base(), tree)
    path = folder / "node.tar.gz"
    machine_capture.write(there, str(path))
    return path


@pytest.mark.parametrize(
    ("gpu", "image"),
    [
        (machines.amd("MI300X"), "docker.io/rocm/primus:v26.5"),
        (machines.nvidia("H100 SXM"), "nvcr.io/nvidia/pytorch:26.02-py3"),
    ],
    ids=["amd", "nvidia"],
)
@pytest.mark.full
def test_without_an_image_it_is_the_one_that_the_vendor_of_the_gpus_publishes_and_said(
    primus: Run, project: Path, tmp_path: Path, gpu: machines.Tree, image: str
) -> None:
    there = str(capture(tmp_path, gpu))
    words = ("container", "--dry-run", "--assume-host", there)
    shown = primus(*words, *TASK, cwd=project)
    assert shown.returncode == 0, shown.stderr
    assert re.search(rf"^# note +image {image}, the default for \w+ GPUs", shown.stdout, re.M)
    assert f" {image} sh -c" in shown.stdout
    inside = primus(*words, "--engine", "apptainer", *TASK, cwd=project).stdout
    assert f" docker://{image} sh -c" in inside
    config(project, "container: {image: mine:1}\n")
    own = primus(*words, *TASK, cwd=project).stdout
    assert " mine:1 sh -c" in own
    assert image not in own


def test_a_framework_may_have_an_image_of_its_own_and_the_page_lists_them_all() -> None:
    page = (ROOT / "docs/container.md").read_text(encoding="utf-8")
    for framework in ("maxtext", "megatron"):
        chosen = images.chosen("", facts_of(gpus=8), framework)
        assert ("jax" in chosen.image) == (framework == "maxtext")
        assert f"| `{chosen.image}` |" in page


def test_without_an_image_and_a_gpu_it_is_refused_with_what_to_do(primus: Run, project: Path) -> None:
    refused = primus("container", "--dry-run", *TASK, cwd=project)
    assert refused.returncode == 2
    assert "fix: add --image IMAGE behind `container`, or set `container: {image: IMAGE}`" in refused.stderr
    assert "or type `direct` instead of `container` and its options, to run without one" in refused.stderr


def test_before_the_nodes_are_known_no_image_is_chosen_for_them(primus: Run, project: Path) -> None:
    words = ("slurm", "--dry-run", "srun", "-N2", "--", "container", *TASK)
    shown = primus(*words, cwd=project)
    assert shown.returncode == 0, shown.stderr
    assert "each node uses the default for its GPUs" in shown.stdout
    assert "--image" not in shown.stdout


@pytest.mark.parametrize(
    ("engine", "image", "whole"),
    [
        ("podman", "rocm/primus:v26.5", "docker.io/rocm/primus:v26.5"),
        ("podman", "ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
        ("podman", "docker.io/rocm/primus:v26.5", ""),
        ("podman", "localhost/mine", ""),
        ("podman", "registry:5000/mine", ""),
        ("podman", "oci-archive:///images/mine.tar", ""),
        ("docker", "rocm/primus:v26.5", ""),
    ],
)
def test_where_podman_gets_a_short_name_the_advice_is_the_whole_one(engine: str, image: str, whole: str) -> None:
    assert images.advice(engine, image).rpartition(" ")[2] == whole


def test_the_step_of_the_engine_has_the_advice_on_a_short_name(primus: Run, project: Path) -> None:
    words = ("--engine", "podman", "--image", "rocm/primus:v26.5")
    planned = json.loads(primus("container", "--dry-run", "--json", *words, *TASK, cwd=project).stdout)
    assert planned["steps"][0]["advice"].endswith("--image docker.io/rocm/primus:v26.5")
