"""Hooks and patches around real launches: their order, what they say, how they stop, and what is left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run, wait_until
from tests.core.test_direct import metadata, run_of

from primus_core.hooks.script_output import Malformed, ScriptOutput, parse_line, secrets_in

TASKS = '''
"""A task that shows what reached it."""
import os
from primus_core import register_task

@register_task("show")
def show(call):
    "Print the words and the variables of the test."
    print("words", list(call.words), {k: v for k, v in os.environ.items() if k.startswith("X_")})
'''
EXPERIMENT = """\
exp_name: down
env: {X_LAYER: experiment}
modules: {pre_trainer: {framework: countdown, overrides: {steps: 4}}}
"""


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A project with the task `show` and an empty folder of hooks."""
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py]\n")
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "hooks").mkdir()
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def ran(result: subprocess.CompletedProcess[str]) -> list[str]:
    """The scripts' own words on the console, in their order: lines that begin with `>`."""
    return [line[1:] for line in result.stderr.splitlines() if line.startswith(">")]


def listing(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if "__pycache__" not in str(path))


# Order, and where they are looked for.


@pytest.mark.parametrize("locale", ["en_US.UTF-8", "C.UTF-8", "C"])
def test_hooks_run_by_bytes_whatever_the_locale(primus: Run, stage: Path, locale: str) -> None:
    for name in ("a.sh", "é.sh", "Z.sh", "9.sh", "10.sh", "_.sh", "B.py"):
        write(stage / "hooks" / name, f"echo '>{name}'\n" if name.endswith("sh") else f"print('>{name}')\n")
    write(stage / "hooks/README.md", "no script")
    write(stage / "hooks/folder.sh/x", "no script either")
    result = primus("direct", "--", "show", cwd=stage, env={"LC_ALL": locale, "PYTHONUTF8": "1"})
    assert ran(result) == ["10.sh", "9.sh", "B.py", "Z.sh", "_.sh", "a.sh", "é.sh"]


@pytest.mark.full
def test_general_hooks_come_before_the_tasks_and_those_before_the_actions(primus: Run, stage: Path) -> None:
    for place in ("2.sh", "show/1.sh", "show/fast/0.sh", "show/slow/0.sh", "other/0.sh", "show/fast/deep/0.sh"):
        write(stage / "hooks" / place, f"echo '>{place}'\n")
    assert ran(primus("direct", "--", "show", "fast", cwd=stage)) == ["2.sh", "show/1.sh", "show/fast/0.sh"]
    assert ran(primus("direct", "--", "show", cwd=stage)) == ["2.sh", "show/1.sh"]


@pytest.mark.parametrize("word", ["..", ".", "", "../../elsewhere", "ABSOLUTE", "-x", "fast/deep"])
def test_a_word_of_the_task_never_leads_out_of_its_folder_of_hooks(primus: Run, stage: Path, word: str) -> None:
    for place in ("elsewhere/0.sh", "hooks/show/fast/deep/0.sh", "hooks/show/1.sh"):
        write(stage / place, f"echo '>{place}'\n")
    word = str(stage / "elsewhere") if word == "ABSOLUTE" else word
    assert ran(primus("direct", "--", "show", word, cwd=stage)) == ["hooks/show/1.sh"]


def test_a_folder_that_is_reached_in_two_ways_runs_once(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1.sh", "echo '>once'\n")
    (stage / "link").symlink_to("hooks")
    assert ran(primus("direct", "--hooks", "hooks", "--hooks", "./link/", "--", "show", cwd=stage)) == ["once"]


def test_without_primus_yaml_a_folder_called_hooks_is_only_a_folder_and_a_launch_says_so(
    primus: Run, third_party: str, stage: Path
) -> None:
    write(stage / "hooks/1.sh", "echo '>ran'\n")
    (stage / "primus.yaml").unlink()
    launched = primus("direct", "--", "greet", cwd=stage, env={"PYTHONPATH": third_party})
    assert ran(launched) == []
    assert launched.stderr.count("note: hooks/ is not used") == 1


# What they get, and what they say.


def test_a_script_gets_the_tasks_words_byte_for_byte(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1.sh", "printf '>%s\\n' \"$@\"\n")
    write(stage / "hooks/2.py", "import sys\nprint('>' + repr(sys.argv[1:]))\n")
    words = ["fast", "a b", "$HOME;*", ""]
    assert ran(primus("direct", "--", "show", *words, cwd=stage)) == ["show", *words, repr(["show", *words])]


def test_variables_are_seen_by_later_scripts_and_by_the_ranks(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1.sh", 'echo env.X_A=one two = three\necho env.X_EMPTY=\necho "env.X_Q=\'\\""\n')
    write(stage / "hooks/2.py", "import os\nprint('env.X_B=' + os.environ['X_A'] + '!')\nprint('env.X_A=later')\n")
    write(stage / "patch.sh", "echo \">$X_A,$X_B,${X_EMPTY-unset}\"\nprintf 'env.X_C=no newline'\n")
    result = primus("direct", "--patch", "patch.sh", "--", "show", cwd=stage)
    assert ran(result) == ["later,one two = three!,"]
    seen = {"X_A": "later", "X_EMPTY": "", "X_Q": "'\"", "X_B": "one two = three!", "X_C": "no newline"}
    assert eval(result.stdout.removeprefix("words [] ")) == seen


@pytest.mark.full
@pytest.mark.torch
def test_every_rank_sees_what_a_hook_said(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1.sh", "echo env.X_A=said\n")
    write(stage / "tasks.py", TASKS.replace('"show"', '"show", scope="rank"'))
    result = primus("direct", "--", "show", cwd=stage, env={"GPUS_PER_NODE": "2"})
    assert result.returncode == 0, result.stderr
    for rank in (0, 1):
        assert "'X_A': 'said'" in (run_of(stage, "show") / f"logs/rank_{rank}.log").read_text()


def test_options_win_over_hooks_and_hooks_over_the_callers_own_environment(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1.sh", 'echo ">$X_OPTION"\nfor n in OWN OPTION FILE; do echo env.X_$n=hook; done\n')
    write(stage / "hooks/2.sh", 'echo ">$X_OPTION,$X_FILE,$X_OWN"\n')
    write(stage / "x.env", "X_FILE=file\n")
    words = ("direct", "--env", "X_OPTION=option", "--env", "x.env", "--", "show")
    result = primus(*words, cwd=stage, env={"X_OWN": "caller", "X_OPTION": "caller"})
    assert ran(result) == ["option", "option,file,hook"]
    assert eval(result.stdout.removeprefix("words [] ")) == {"X_OWN": "hook", "X_OPTION": "option", "X_FILE": "file"}
    plan = json.loads((run_of(stage, "show") / "plan.json").read_text())
    by_name = {v["name"]: v for v in plan["environment"]}
    assert by_name["X_OWN"]["origin"] == "hook 1.sh"
    assert by_name["X_OWN"]["overrode"] == [["caller", "user"]]
    assert by_name["X_OPTION"]["overrode"] == [["hook", "hook 1.sh"], ["caller", "user"]]


def test_extra_adds_arguments_to_the_task(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1.sh", "echo 'extra.name=value with  spaces'\necho extra.empty=\necho extra.a.b-c=-1\n")
    write(stage / "hooks/2.sh", "echo \">$*\"\necho 'extra.name=$(touch made) é'\n")
    result = primus("direct", "--", "show", "x", cwd=stage)
    words = ["x", "--name", "value with  spaces", "--empty", "", "--a.b-c", "-1", "--name", "$(touch made) é"]
    assert result.stdout == f"words {words} {{}}\n"
    assert ran(result) == ["show x"], "a script gets what the person typed"
    assert not (stage / "made").exists()
    steps = json.loads((run_of(stage, "show") / "plan.json").read_text())["steps"]
    assert [step["argv"][-1] for step in steps] == ["x", "x", words[-1]], "the record says what the scripts got"


@pytest.mark.full
@pytest.mark.torch
def test_a_setting_of_a_real_framework_can_come_from_a_hook(primus: Run, stage: Path) -> None:
    quick = Path(__file__).resolve().parents[2] / "examples/quickstart.yaml"
    write(stage / "exp.yaml", quick.read_text(encoding="utf-8"))
    write(stage / "hooks/1.sh", "echo extra.training.steps=2\n")
    result = primus("direct", "--", "train", "pretrain", "--config", "exp.yaml", "exp_name=hooked", cwd=stage)
    assert result.returncode == 0, result.stderr
    [run] = stage.rglob("output/**/hooked")
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_malformed_line_is_named_with_its_script_and_the_launch_goes_on(primus: Run, stage: Path) -> None:
    lines = ["env.A-B=1", "env.X", "env.=1", "env. X=1", "extra.=1", "extra.a b=1", "extra.x", "env.RANK=3", "env.9X=1"]
    text = "".join(f"echo '{line}'\n" for line in lines)
    write(stage / "hooks/1.sh", f"{text}printf 'extra.nul=a\\0b\\n'\nprintf 'env.X_NUL=a\\0b\\n'\necho env.X_GOOD=1\n")
    result = primus("direct", "--", "show", cwd=stage)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "words [] {'X_GOOD': '1'}\n"
    for line in lines:
        assert f"note: hook hooks/1.sh: '{line}' was ignored" in result.stderr
    assert result.stderr.count("can carry a NUL character") == 2
    events = (run_of(stage, "show") / "logs/events.jsonl").read_text()
    assert events.count("malformed_line") == len(lines) + 2


def test_what_is_no_protocol_is_only_shown_and_logged(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1.sh", "echo env.X_ERR=1 >&2\necho ' env.X_IN=1'\necho 'Env.X=1 environment.X=1 export X=1'\n")
    result = primus("direct", "--", "show", cwd=stage)
    assert result.stdout == "words [] {}\n"
    assert "was ignored" not in result.stderr
    logged = (run_of(stage, "show") / "logs/launch.log").read_text()
    for line in ("env.X_ERR=1", " env.X_IN=1", "Env.X=1 environment.X=1 export X=1"):
        assert line in result.stderr.splitlines()
        assert line in logged.splitlines()


def test_long_values_and_windows_line_ends_arrive_well(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1.py", "print('env.X_LONG=' + 'v' * 100_000)\nprint('env.X_CRLF=a\\r')\n")
    result = primus("direct", "--", "show", cwd=stage)
    assert eval(result.stdout.removeprefix("words [] ")) == {"X_LONG": "v" * 100_000, "X_CRLF": "a"}


def test_bytes_that_are_no_text_arrive_as_they_are(clean_environ: dict[str, str], stage: Path) -> None:
    write(stage / "hooks/1.sh", "printf 'env.X_BYTES=\\377\\376\\n'\n")
    command = [str(Path(sys.executable).with_name("primus")), "direct", "--", "show"]
    result = subprocess.run(command, env=clean_environ, cwd=stage, capture_output=True, check=True)
    assert result.stdout == b"words [] {'X_BYTES': '\\udcff\\udcfe'}\n"


# How they end.


def test_a_failing_hook_stops_the_launch_with_its_exit_code(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1.sh", "echo env.X_A=1\necho 'no disk in /data'\nexit 7\n")
    write(stage / "hooks/2.sh", "touch ran\n")
    write(stage / "patch.sh", "touch ran\n")
    result = primus("direct", "--patch", "patch.sh", "--", "show", cwd=stage)
    assert (result.returncode, result.stdout) == (7, "")
    assert "no disk in /data" in result.stderr
    assert "primus: hook hooks/1.sh failed" in result.stderr
    assert not (stage / "ran").exists()
    record = metadata(run_of(stage, "show"))
    assert (record["status"], record["exit_code"]) == ("failed", 7)
    assert record["first_failure"]["what"] == "hook hooks/1.sh: exit code 7: no disk in /data"


def test_a_hook_that_fails_in_silence_is_not_blamed_with_anothers_words(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1.sh", "echo said by the first\n")
    write(stage / "hooks/2.sh", "exit 4\n")
    result = primus("direct", "--", "show", cwd=stage)
    assert result.returncode == 4
    assert "said by the first" not in result.stderr.partition("hook hooks/2.sh failed")[2]


@pytest.mark.parametrize("script", ["exit 2\n", "kill -9 $$\n"])
def test_a_hook_may_not_skip_itself_and_a_killed_one_stops_too(primus: Run, stage: Path, script: str) -> None:
    write(stage / "hooks/1.sh", script)
    result = primus("direct", "--", "show", cwd=stage)
    assert (result.returncode, result.stdout) == (2 if "exit" in script else 137, "")


def test_a_python_hook_that_raises_stops_with_its_traceback(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1.py", "raise OSError('no disk')\n")
    result = primus("direct", "--", "show", cwd=stage)
    assert result.returncode == 1
    assert "OSError: no disk" in result.stderr


@pytest.mark.full
def test_a_patch_may_say_that_it_is_not_applicable(primus: Run, stage: Path) -> None:
    write(stage / "old.sh", "echo env.X_A=half\necho extra.half=1\nexit 2\n")
    write(stage / "new.py", "import sys\nprint('env.X_B=1')\nsys.exit(0)\n")
    result = primus("direct", "--patch", "old.sh", "--patch", "new.py", "--", "show", cwd=stage)
    assert (result.returncode, result.stdout) == (0, "words [] {'X_B': '1'}\n")
    assert "patch old.sh: not applicable here" in result.stderr


def test_any_other_exit_code_of_a_patch_stops_the_launch(primus: Run, stage: Path) -> None:
    write(stage / "p.py", "import sys\nsys.exit(3)\n")
    result = primus("direct", "--patch", "p.py", "--", "show", cwd=stage)
    assert (result.returncode, result.stdout) == (3, "")
    assert "patch p.py failed" in result.stderr


@pytest.mark.parametrize("trap", ["", "trap 'exit 0' TERM\n", "trap '' TERM INT\n"])
@pytest.mark.full
def test_a_hanging_hook_is_cut_off_with_its_limit_named(primus: Run, stage: Path, trap: str) -> None:
    write(stage / "primus.yaml", "plugins: [./tasks.py]\nhooks: {timeout_s: 1}\n")
    write(stage / "hooks/1.sh", f"{trap}sleep 600 &\nsleep 600\n")
    result = primus("direct", "--grace-period", "1", "--", "show", cwd=stage)
    assert result.returncode in (143, 137)
    assert result.stdout == ""
    assert "hook hooks/1.sh took longer than 1 s and was cut off" in result.stderr
    assert metadata(run_of(stage, "show"))["first_failure"]["what"] == "hook hooks/1.sh: took longer than 1 s"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("how", ["plain", "traps and says that all is well"])
def test_a_signal_during_a_hook_ends_it_at_once_and_nothing_is_launched(
    clean_environ: dict[str, str], stage: Path, number: signal.Signals, code: int, how: str
) -> None:
    trap = "" if how == "plain" else "trap 'exit 0' INT TERM\n"
    # One process says that it is ready and sleeps: a bash whose command has just ended well forgets a SIGINT.
    write(stage / "hooks/1.sh", f"{trap}sleep 600 &\nsh -c 'echo > ready; exec sleep 600'\n")
    write(stage / "hooks/2.sh", "touch ran\n")
    command = [str(Path(sys.executable).with_name("primus")), "direct", "--grace-period", "600", "--", "show"]
    process = subprocess.Popen(command, text=True, env=clean_environ, cwd=stage, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)  # fmt: skip
    wait_until((stage / "ready").exists)
    process.send_signal(number)
    stdout, _ = process.communicate(timeout=60)  # without waiting for the grace period
    assert (process.returncode, stdout) == (code, "")
    assert not (stage / "ran").exists()
    assert metadata(run_of(stage, "show"))["status"] == "interrupted"


# Wrong requests, dry runs, what is kept.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--patch", "fxi.sh"), ["--patch: there is no file 'fxi.sh'", "did you mean 'fix.sh'?"]),
        (("--patch", "fix.txt"), ["--patch fix.txt: it is neither a bash nor a Python file", "*.sh or *.py"]),
        (("--patch", "hooks"), ["it is neither a bash nor a Python file"]),
        (("--hooks", "hoks"), ["--hooks: there is no folder", "hoks", "did you mean '", "/hooks'?"]),
        (("--hooks", "fix.sh"), ["is not a hooks folder", "--patch FILE"]),
    ],
)
@pytest.mark.full
def test_what_is_not_there_is_refused_before_anything_happens(
    primus: Run, stage: Path, options: tuple[str, ...], words: list[str]
) -> None:
    write(stage / "fix.sh", "touch ran\n")
    write(stage / "fix.txt", "")
    primus("direct", "--dry-run", "--", "show", cwd=stage)
    before = listing(stage)
    result = primus("direct", *options, "--", "show", cwd=stage)
    assert result.returncode == 2
    for word in words:
        assert word in result.stderr
    assert listing(stage) == before
    assert primus("hooks", "list", *options, cwd=stage).returncode == 2


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/gone/check.sh"), os.mkfifo])
@pytest.mark.full
def test_a_hook_that_cannot_be_read_is_not_passed_over(primus: Run, stage: Path, make: Any) -> None:
    make(stage / "hooks/0_check.sh")
    for words in (("direct", "--", "show"), ("direct", "--dry-run", "--", "show"), ("hooks", "list", "show")):
        result = primus(*words, cwd=stage)
        assert result.returncode == 2
        assert "hooks/0_check.sh' cannot be run" in result.stderr
    assert not (stage / "output").exists()


@pytest.mark.full
def test_a_dry_run_lists_all_and_runs_none(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1 a.sh", "touch ran\n")
    write(stage / "hooks/show/2.py", "open('ran', 'w')\n")
    write(stage / "p.sh", "touch ran\n")
    before = listing(stage)
    words = ("direct", "--dry-run", "--patch", "p.sh")
    text = primus(*words, "--", "show", "x", cwd=stage).stdout
    names = ["hook hooks/1 a.sh", "hook hooks/show/2.py", "patch p.sh"]
    places = [text.index(f"# step: {name}") for name in names]
    assert places == sorted(places)
    steps = json.loads(primus(*words, "--json", "--", "show", "x", cwd=stage).stdout)["steps"]
    assert [step["name"] for step in steps] == [*names, "worker"]
    assert [step["kind"] for step in steps] == ["hook", "hook", "patch", "worker"]
    assert steps[0]["argv"] == ["bash", str(stage / "hooks/1 a.sh"), "show", "x"]
    assert {step["timeout_s"] for step in steps[:3]} == {3600.0}
    assert not (stage / "ran").exists()
    assert listing(stage) == before


def test_the_run_directory_keeps_the_texts_of_all_scripts(primus: Run, stage: Path) -> None:
    texts = {"config/hooks/01-1.sh": "echo one # é\n", "config/hooks/02-1.sh": "echo two\r\n",
             "config/patches/03-p.py": "print('three')\n"}  # fmt: skip
    for place, text in zip(("hooks/1.sh", "hooks/show/1.sh", "p.py"), texts.values(), strict=True):
        (stage / place).parent.mkdir(exist_ok=True)
        (stage / place).write_bytes(text.encode())
    assert primus("direct", "--patch", "p.py", "--", "show", cwd=stage).returncode == 0
    run = run_of(stage, "show")
    assert {path: (run / path).read_bytes().decode() for path in texts} == texts
    assert len(list((run / "config/hooks").iterdir())) == 2


def test_a_hook_that_writes_a_hook_does_not_change_what_this_run_did(primus: Run, stage: Path) -> None:
    write(stage / "hooks/1.sh", "echo env.X_A=1\necho 'touch ran' > hooks/2.sh\n")
    result = primus("direct", "--", "show", cwd=stage)
    assert result.stdout == "words [] {'X_A': '1'}\n"
    assert not (stage / "ran").exists()
    run = run_of(stage, "show")
    assert [s["kind"] for s in json.loads((run / "plan.json").read_text())["steps"]] == ["hook", "worker"]
    assert [path.name for path in (run / "config/hooks").iterdir()] == ["01-1.sh"]


@pytest.mark.full
def test_hooks_list_shows_them_in_their_order(primus: Run, stage: Path) -> None:
    for place in ("hooks/2.sh", "hooks/show/1.sh", "hooks/other/1.sh", "given/0.py", "fix.sh"):
        write(stage / place, "touch ran\n")
    words = ("--hooks", "given", "--patch", "fix.sh")
    own = [str(stage / p) for p in ("hooks/2.sh", "hooks/show/1.sh", "given/0.py", "fix.sh")]
    rows = json.loads(primus("hooks", "list", "show", *words, "--json", cwd=stage).stdout)[: len(own)]
    assert [row["runs"] for row in rows] == own
    assert [row["kind"] for row in rows] == ["hook", "hook", "hook", "patch"]
    plan = json.loads(primus("direct", "--dry-run", "--json", *words, "--", "show", cwd=stage).stdout)
    assert [step["script"] for step in plan["steps"] if step["script"]] == own, "as a run has them"
    text = primus("hooks", "list", *words, cwd=stage).stdout
    listed = ["hooks/2.sh", "hooks/other/1.sh", "hooks/show/1.sh", "given/0.py", "fix.sh"]
    assert [line.split()[1] for line in text.splitlines()[2:]][: len(listed)] == listed
    assert not (stage / "ran").exists()
    elsewhere = primus("hooks", "list", cwd=stage / "given").stdout
    assert not [line for line in elsewhere.splitlines() if line.startswith(("hook ", "patch "))]
    assert "did you mean 'show'?" in primus("hooks", "list", "shwo", cwd=stage).stderr
    assert "there is no file 'gone.yaml'" in primus("hooks", "list", "--config", "gone.yaml").stderr


def test_a_run_without_scripts_has_no_folder_for_them(primus: Run, stage: Path) -> None:
    assert primus("direct", "--", "show", cwd=stage).returncode == 0
    assert not (run_of(stage, "show") / "config/hooks").exists()


# The line protocol by itself.

NAME = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True).filter(lambda n: n not in ("RANK", "WORLD_SIZE"))
VALUE = st.text(st.characters(blacklist_characters="\r\n\0"), max_size=40)


def env_of(spoken: Any) -> dict[str, str]:
    assert isinstance(spoken, ScriptOutput)
    return {v.name: v.value for v in spoken.environment}


@given(NAME, VALUE, st.sampled_from(["", "\n", "\r\n"]))
@pytest.mark.full
def test_a_variable_is_said_with_any_value(name: str, value: str, end: str) -> None:
    assert env_of(parse_line(f"env.{name}={value}{end}", "s.sh")) == {name: value}


@given(st.from_regex(r"x[A-Za-z0-9_.-]*", fullmatch=True), VALUE)
def test_an_argument_is_said_with_any_value_that_is_no_secret(name: str, value: str) -> None:
    spoken = parse_line(f"extra.{name}={value}", "s.sh")
    if isinstance(spoken, ScriptOutput):
        assert spoken == ScriptOutput(words=(f"--{name}", value))
    else:
        assert secrets_in(f"extra.{name}={value}")


@given(st.text(max_size=60))
def test_no_line_breaks_it_and_only_the_protocols_lines_say_anything(text: str) -> None:
    for line in (text, f"env.{text}", f"extra.{text}"):
        spoken = parse_line(line, os.devnull)
        assert (spoken is None) == (not line.rstrip("\r\n").startswith(("env.", "extra.")))
        if isinstance(spoken, Malformed):
            assert spoken.why


@given(NAME, VALUE, VALUE)
def test_a_later_value_of_a_variable_wins_and_words_add_up(name: str, before: str, after: str) -> None:
    first, second = parse_line(f"env.{name}={before}", "a"), parse_line(f"env.{name}={after}", "b")
    assert isinstance(first, ScriptOutput)
    assert isinstance(second, ScriptOutput)
    assert env_of(first.and_then(second)) == {name: after}
    assert ScriptOutput(words=("--a", "1")).and_then(ScriptOutput(words=("--a", "2"))).words == ("--a", "1", "--a", "2")


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("env.HF_TOKEN=abcdefgh", ("abcdefgh",)),
        ("env.HF_TOKEN = abcdefgh", ("abcdefgh",)),
        ("env.HF-TOKEN=abcdefgh", ("abcdefgh",)),
        ("env.A_KEY=abc", ("env.A_KEY=abc",)),
        ("env.A_KEY=", ()),
        ("env.PROXY=http://me:hunter22@p", ("http://me:hunter22@p",)),
        ("extra.hub.token=abcdefgh", ("abcdefgh",)),
        ("extra.hub.token=${HF_TOKEN}", ()),
        ("extra.eos_token=abcdefgh", ()),
        ("env.NCCL_DEBUG=abcdefgh", ()),
        ("HF_TOKEN=abcdefgh", ()),
    ],
)
def test_a_secret_is_seen_in_a_line_before_the_line_is_shown(line: str, secret: tuple[str, ...]) -> None:
    assert secrets_in(line) == secret
