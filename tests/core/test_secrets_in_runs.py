"""A secret's value is in no file, on no screen and in no process list, wherever it came from."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import Run

from primus_machine.processes import descendants

VALUE = "secret-5f1c9a77e0"


def everything(result: subprocess.CompletedProcess[str], folder: Path) -> str:
    """All text that a run left: screen and files."""
    files = [p.read_text(errors="replace") for p in folder.rglob("*") if p.is_file() and p.name != "my_tasks.py"]
    return "\n".join([result.stdout, result.stderr, *files])


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--dry-run", "--json"), ("--debug",)])
@pytest.mark.parametrize("given", ["environment", "option", "joined option", "file"])
@pytest.mark.full
def test_a_token_shows_nowhere(primus: Run, project: Path, options: tuple[str, ...], given: str) -> None:
    words: dict[str, tuple[str, ...]] = {
        "environment": (),
        "option": ("--env", f"HF_TOKEN={VALUE}"),
        "joined option": (f"--env=HF_TOKEN={VALUE}",),
        "file": ("--env", str(project.parent / "s.env")),
    }
    (project.parent / "s.env").write_text(f"HF_TOKEN={VALUE}\n")
    env = {"HF_TOKEN": VALUE} if given == "environment" else {}
    result = primus("direct", *options, *words[given], "--", "behave", "environment", cwd=project, env=env)
    assert result.returncode == 0, result.stderr
    text = everything(result, project)
    assert VALUE not in text
    if "--dry-run" not in options:
        assert "'HF_TOKEN': '<secret>'" in text, "the worker has the variable; only its value is masked"


@pytest.mark.full
def test_a_token_given_as_an_option_is_not_in_the_process_list(clean_environ: dict[str, str], project: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("primus")),
        "direct",
        "--env",
        f"HF_TOKEN={VALUE}",
        "--",
        "behave",
        "wait",
    ]
    process = subprocess.Popen(
        command, env=clean_environ, cwd=project, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    process.stdout.readline()
    pids = [process.pid, *descendants(process.pid)]
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]
    process.terminate()
    process.communicate(timeout=60)
    assert len(lines) > 2
    assert not [line for line in lines if VALUE.encode() in line]


@pytest.mark.full
def test_a_failing_worker_does_not_show_it_in_its_traceback(primus: Run, project: Path) -> None:
    result = primus("direct", "--", "behave", "raise", VALUE, cwd=project, env={"API_KEY": VALUE})
    assert result.returncode == 1
    assert VALUE not in everything(result, project)


def test_a_password_in_a_url_is_masked(primus: Run, project: Path) -> None:
    env = {"HTTPS_PROXY": f"http://me:{VALUE}@proxy:3128"}
    assert VALUE not in everything(primus("direct", "--", "behave", "environment", cwd=project, env=env), project)


EXPERIMENT = """\
exp_name: down
env: {WANDB_API_KEY: %s, OTHER: "${HF_TOKEN}"}
modules: {pre_trainer: {framework: countdown}}
"""


PLANTED = {
    "environment": "planted-in-the-environment-1a",
    "option": "planted-in-an-option-2b",
    "file": "planted-in-a-file-of-options-3c",
    "config": "planted-in-the-config-4d",
    "hook": "planted-by-a-hook-5e",
    "python": "planted-by-a-python-hook-6f",
    "url": "planted-in-a-url-7a",
    "bytes": "planted by\ta \\ 'hook' \"quoted\" \u00e9 8b",
}
TASKS = """
import os, sys, time
from primus_core import hookimpl, register_task
@register_task("tell")
def tell(call):
    print(dict(os.environ))
    for value in os.environ.values():
        print(value)
        print("stderr", value, file=sys.stderr)
    time.sleep(0.5)
    if call.words[:1] == ("fail",):
        raise ValueError(" ".join(os.environ.values()))
"""
PYTHON_HOOKS = """
import os
from primus_core import hookimpl
@hookimpl
def before_launch(run):
    print(dict(os.environ))
@hookimpl
def after_run(run, result):
    print(*os.environ.values())
    raise ValueError(os.environ["HOOK_TOKEN"])
"""


@pytest.fixture
def planted(project: Path) -> Path:
    """A git repository where secrets lie about in files: untracked ones, a `.env`, and a hook that says one."""
    values = PLANTED
    (project / "primus.yaml").write_text("plugins: [./my_tasks.py, ./tell.py, ./py_hooks.py]\n")
    (project / "tell.py").write_text(TASKS)
    (project / "py_hooks.py").write_text(PYTHON_HOOKS)
    (project / "hooks").mkdir()
    (project / "hooks/1.sh").write_text(
        f"set -x\necho env.HOOK_TOKEN={values['hook']}\necho 'extra.x=a b'\nsleep 0.3\n"
    )
    (project / "hooks/2.py").write_text(
        f"import os\nprint('env.BYTES_SECRET=' + {values['bytes']!r})\nprint('env.PY_PASSWORD=' + os.environ['SEED'])\n"
        "print('env.BAD-TOKEN=' + os.environ['HF_TOKEN'], os.environ['HOOK_TOKEN'], flush=True)\n"
    )
    commit = ("git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x", "--allow-empty")
    for command in (("git", "init", "-q"), ("git", "add", "my_tasks.py"), commit):
        subprocess.run(command, cwd=project, check=True)
    (project / "notes.txt").write_text("\n".join(f"kept here: {v}" for name, v in values.items() if name != "config"))
    (project / "old.yaml").write_text(f"hub:\n  hf_token: {values['config']}\n")
    (project / ".env").write_text(f"NEVER_SEEN_TOKEN={values['file']}-and-more\n")
    (project / "s.env").write_text(f"FILE_API_KEY={values['file']}\n")
    return project


@contextmanager
def watched(process: subprocess.Popen[str]) -> Iterator[set[bytes]]:
    """The command lines of all that a process starts, and its own last one.

    The first is as the person typed it, until it has begun again without the secret.
    """
    seen: set[bytes] = set()
    own = [b""]
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            parents: dict[int, int] = {}
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    try:
                        parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    except OSError:
                        continue
            for pid in parents:
                above = pid
                while above in parents and above != process.pid:
                    above = parents[above]
                if above != process.pid:
                    continue
                try:
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                if pid != process.pid:
                    seen.add(line)
                elif line:  # of one that has ended it is empty
                    own[0] = line
            time.sleep(0.003)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
        seen.add(own[0])


def leaks(text: str, *which: str) -> list[str]:
    """Which of these secrets (of all) a text holds, as they are or as JSON and repr write them."""
    forms = {name: (value, json.dumps(value)[1:-1], repr(value)[1:-1]) for name, value in PLANTED.items()}
    return [name for name in which or PLANTED if any(form in text for form in forms[name])]


@pytest.mark.torch
@pytest.mark.full
@pytest.mark.parametrize("words", [("tell",), ("tell", "fail")])
def test_secrets_planted_everywhere_are_found_nowhere(
    primus: Run, clean_environ: dict[str, str], planted: Path, words: tuple[str, ...]
) -> None:
    env = {"HF_TOKEN": PLANTED["environment"], "SEED": PLANTED["python"],
           "HTTPS_PROXY": f"http://me:{PLANTED['url']}@proxy:3128"}  # fmt: skip
    options = ("--env", f"WANDB_API_KEY={PLANTED['option']}", "--env", "s.env", "--log-file", "console.log")
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("primus")), "direct", *options, "--", *words],
        env={**clean_environ, **env}, cwd=planted, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with watched(process) as commands:
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == len(words) - 1, stderr
    assert len(commands) > 4, "they were watched"
    assert "'HOOK_TOKEN': '<secret>'" in stdout, "the task has it, and only its value is masked"
    assert not leaks(stdout + stderr)
    assert not leaks(b"\n".join(commands).decode(errors="replace").replace("\0", " "))
    run = (planted / "output/tell").resolve()
    for path in [planted / "console.log", *(path for path in run.rglob("*") if path.is_file())]:
        assert not leaks(path.read_text(errors="replace")), path.relative_to(planted)
    assert "kept here: <secret>" in (run / "code/diff.patch").read_text(), "the file is there, without the values"
    assert "NEVER_SEEN" not in (run / "code/diff.patch").read_text(), "a .env stays out whole"
    assert "<secret>" in (run / "logs/hooks.log").read_text()
    later = [
        ("direct", *options, "--dry-run", "--", *words),
        ("direct", *options, "--dry-run", "--json", "--", *words),
        ("runs", "show", "tell"),
        ("runs", "show", "tell", "--json"),
        ("runs", "list"),
        ("env", "explain", "--env", f"HF_TOKEN={PLANTED['option']}", "--env", "s.env"),
        ("env", "show", "--json", "--env", f"HF_TOKEN={PLANTED['option']}"),
        ("hooks", "list", "tell"),
        ("replay", "tell", "--check"),
        ("replay", "tell", "--dry-run", "--force"),
        ("replay", "tell", "--dry-run", "--force", "--json"),
    ]
    known = {"HOOK_TOKEN": PLANTED["hook"], "PY_PASSWORD": PLANTED["python"], "BYTES_SECRET": PLANTED["bytes"],
             "WANDB_API_KEY": PLANTED["option"], "FILE_API_KEY": PLANTED["file"]}  # fmt: skip
    for command in later:
        result = primus(*command, cwd=planted, env={**env, **(known if command[0] == "replay" else {})})
        assert result.stdout, (command, result.stderr)
        assert not leaks(result.stdout + result.stderr), command


@pytest.mark.full
def test_a_hook_cannot_pass_a_secret_as_an_argument(primus: Run, planted: Path) -> None:
    (planted / "hooks/2.py").write_text(f"print('extra.hub.token={PLANTED['hook']}')\n")
    result = primus("direct", "--", "analyze", "topology", cwd=planted, env={"HF_TOKEN": PLANTED["environment"]})
    assert result.returncode == 0, result.stderr
    assert "'extra.hub.token=<secret>' was ignored: it contains a secret" in result.stderr
    assert result.stdout == "rank 0 of 1 words ['--x', 'a b']\n"
    assert not leaks(everything(result, planted / "output"), "hook")


NOTING = """
import atexit, os
@atexit.register
def note():
    with open(os.environ["NOTED"], "ab") as file:
        file.write(open("/proc/self/cmdline", "rb").read() + b"\\n")
"""


@pytest.mark.parametrize(
    "words",
    [
        ("env", "explain", "X_TOKEN", "--env", f"X_TOKEN={VALUE}"),
        ("env", "show", f"--env=X_TOKEN={VALUE}"),
        ("direct", "--dry-run", "--env", f"X_TOKEN={VALUE}", "--", "behave", "--", "--env", "COLOUR=red"),
        ("replay", "behave", "direct", "--dry-run", "--env", f"X_TOKEN={VALUE}"),
    ],
)
@pytest.mark.full
def test_no_command_that_takes_env_leaves_the_value_in_the_process_list(
    primus: Run, project: Path, words: tuple[str, ...]
) -> None:
    (project / "site").mkdir()
    (project / "site/sitecustomize.py").write_text(NOTING)
    if words[0] == "replay":
        assert primus("direct", "--", "behave", "exit", "0", cwd=project).returncode == 0
    result = primus(*words, cwd=project, env={"PYTHONPATH": str(project / "site"), "NOTED": str(project / "noted")})
    assert result.returncode == 0, result.stderr
    noted = (project / "noted").read_text()
    assert "X_TOKEN" in noted
    assert VALUE not in noted + result.stdout + result.stderr
    assert "X_TOKEN" in result.stdout, "it is set, all the same"


@pytest.mark.full
def test_the_words_of_a_task_are_its_own_even_where_they_look_like_an_option_with_a_secret(
    primus: Run, project: Path
) -> None:
    words = ("--env", "HF_TOKEN=$GIVEN_TO_THE_TASK", "--", "x", "--hf-token", "${HF_TOKEN}", "--use-auth-token", "true")
    result = primus("direct", "--env", "MY_TOKEN=abcdef12", "--", "analyze", "topology", *words, cwd=project)
    assert result.stdout == f"rank 0 of 1 words {list(words)}\n"


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--dry-run", "--json"), ("--debug",)])
@pytest.mark.parametrize("words", [("--hf-token", VALUE), (f"--token={VALUE}",), (f"api_key={VALUE}",)])
def test_a_secret_in_the_words_of_any_task_is_refused_and_not_repeated(
    primus: Run, project: Path, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    result = primus("direct", "--single", *options, "--", "analyze", "topology", "show", *words, cwd=project)
    assert result.returncode == 2
    assert "contains a secret, which everybody on this machine could read" in result.stderr
    assert "export it" in result.stderr
    assert VALUE not in everything(result, project)
    assert not (project / "output").exists()


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--dry-run", "--json")])
def test_a_known_value_in_the_words_of_a_task_is_masked(primus: Run, project: Path, options: tuple[str, ...]) -> None:
    words = ("analyze", "topology", "--greeting", VALUE, f"x={VALUE}")
    result = primus("direct", "--single", *options, "--", *words, cwd=project, env={"DB_PASS": VALUE})
    assert result.returncode == 0, result.stderr
    assert VALUE not in everything(result, project)
    assert "<secret>" in result.stdout


UNUSUAL = {
    **dict.fromkeys(("OPENAI_API_KEYS", "API_KEY_PROD", "SMTP_PASS", "MYAPP_CREDS", "GITHUB_PAT"), "{}"),
    **dict.fromkeys(("SECRETKEY", "SSH_KEY_RSA", "REDISCLI_AUTH", "HF_TOKENS"), "{}"),
    "AZURE_STORAGE_CONNECTION_STRING": "AccountName=me;AccountKey={}==;EndpointSuffix=core.windows.net",
    "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer {}",
    "PIP_INDEX_URL": "https://{}@host/simple",
    "GIT_REMOTE": "https://x-access-token:{}@github.com/me/it",
}
TELL_PARTS = """
from primus_core import register_task
from urllib.parse import quote
import json, os
@register_task("tell")
def tell(call):
    for name in call.words:
        value = os.environ[name]
        print(value, value.encode(), quote(value), json.dumps(json.dumps(value)))
"""


def test_a_secret_is_masked_whatever_its_variable_is_called_and_however_it_is_spelt(primus: Run, project: Path) -> None:
    (project / "my_tasks.py").write_text(TELL_PARTS)
    planted = {name: f"p{index}-SEKRET-9q5z1c9a77" for index, name in enumerate(UNUSUAL)}
    env = {name: form.format(planted[name]) for name, form in UNUSUAL.items()}
    env |= {"XAUTHORITY": "/home/me/.Xauthority", "MAX_TOKENS": "4096000", "ODD_PASSWORD": 'a+b/"9q5z\u00e91c'}
    result = primus("direct", "--single", "--", "tell", *UNUSUAL, "ODD_PASSWORD", "MAX_TOKENS", cwd=project, env=env)
    assert result.returncode == 0, result.stderr
    text = everything(result, project)
    assert not [name for name, value in planted.items() if value in text]
    assert "9q5z" not in text
    (run,) = (project / "output").glob("tell_*/env/primus_env_dump.txt")
    kept = run.read_text()
    assert "/home/me/.Xauthority" in kept
    assert "4096000 b'4096000'" in result.stdout


def test_a_script_that_logs_in_is_copied_without_the_literals(primus: Run, project: Path) -> None:
    (project / "hooks").mkdir()
    (project / "hooks/1.sh").write_text(
        f"true curl -H 'Authorization: Bearer {VALUE}1' -u me:{VALUE}2 https://x\ntrue --token {VALUE}3 --password=$PW\n"
    )
    commit = ("git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x", "--allow-empty")
    for command in (("git", "init", "-q"), commit):
        subprocess.run(command, cwd=project, check=True)
    result = primus("direct", "--single", "--", "analyze", "topology", cwd=project)
    assert result.returncode == 0, result.stderr
    (run,) = {path.resolve() for path in (project / "output").iterdir()}
    script, patch = run / "config/hooks/01-1.sh", run / "code/diff.patch"
    assert script.read_text() == (
        "true curl -H 'Authorization: Bearer <secret>' -u me:<secret> https://x\ntrue --token <secret> --password=$PW\n"
    )
    assert "hooks/1.sh" in patch.read_text()
    assert VALUE not in patch.read_text()
