"""The system config: layers, who wins, and that nothing wrong in a file stays unsaid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run
from tests.core.run_directories import make

from primus_core.config.document import Document
from primus_core.config.system import Layer, SystemConfig, apply_defaults, load
from primus_core.errors import ConfigError
from primus_core.request.arguments import Parser, parse_segment
from primus_machine.host import HostRoot


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and beside it the folder `work`, where the test stands."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def host(home: Path | str) -> HostRoot:
    return HostRoot(environ={"HOME": str(home)} if home else {})


def write(path: Path | str, text: str) -> None:
    Path(path).write_text(text, encoding="utf-8")


def refused(home: Path, text: str) -> str:
    write("primus.yaml", text)
    with pytest.raises(ConfigError) as caught:
        load(host(home))
    return str(caught.value)


def test_without_files_the_packaged_layer_holds(home: Path) -> None:
    config = load(host(home))
    assert config.values["hooks"] == {"timeout_s": 3600, "event_timeout_s": 30}
    assert (config.hook_timeout_s, config.event_timeout_s) == (3600, 30)
    assert (config.plugin_files, config.hook_folders, config.patches) == ((), (), ())
    assert (config.profile, config.workspace) == ("", "")
    assert config.document.where(("hooks", "timeout_s")) == "packaged"
    assert config.section("direct") == Document({})


def test_the_packaged_layer_names_no_path_so_that_paths_can_be_read_without_it(home: Path) -> None:
    values = load(host(home)).values
    assert set(values).isdisjoint({"plugins", "workspace", "profile"})
    assert set(values["hooks"]) == {"timeout_s", "event_timeout_s"}


def test_the_home_folder_is_the_one_that_an_outer_layer_names(home: Path) -> None:
    write(home / ".primus.yaml", "direct: {env: [~/own.env, A=~/x]}\n")
    inside = HostRoot(environ={"HOME": "/root", "PRIMUS_HOME": str(home)})
    assert load(inside).section("direct").data == {"env": [f"{home}/own.env", "A=~/x"]}


def test_in_a_folder_without_files_nothing_is_opened_and_no_reader_loaded(home: Path) -> None:
    code = """
import sys
from primus_core import variables
from primus_core.config import system as system_config
from primus_machine.host import HostRoot
seen = []
sys.addaudithook(lambda event, _: seen.append(event))
system_config.load(HostRoot())
print(seen, "yaml" in sys.modules, "tomllib" in sys.modules, "argparse" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found == ["[]", "False", "False", "False"]


def test_a_later_layer_wins_mappings_merge_and_lists_are_replaced(home: Path) -> None:
    for name in ("a.py", "b.py"):
        write(name, "")
    write(
        home / ".primus.yaml", "workspace: /home/runs\nhooks: {timeout_s: 1, event_timeout_s: 2}\ndirect: {env: [A=1]}"
    )
    write("primus.yaml", "plugins: [a.py, b.py]\nhooks: {timeout_s: 3}\ndirect:\n  env: [B=2]\n  numa: true\n")
    write("more.yaml", "plugins: [b.py]\nworkspace: /more/runs\n")
    config = load(host(home), "more.yaml")
    assert config.hook_timeout_s == 3
    assert config.event_timeout_s == 2
    assert config.workspace == "/more/runs"
    assert config.plugin_files == (os.path.abspath("b.py"),)
    assert config.section("direct").data == {"env": ["B=2"], "numa": True}
    assert config.section("direct").where(("numa",)) == f"{os.getcwd()}/primus.yaml:5"
    assert load(host(home)).workspace == "/home/runs"


VALUES = st.dictionaries(
    st.sampled_from(["one", "two", "three"]), st.one_of(st.integers(), st.lists(st.integers(), max_size=2)), max_size=3
)


@given(st.lists(st.one_of(st.none(), VALUES), max_size=4))
@pytest.mark.full
def test_each_value_is_that_of_the_last_layer_that_has_it(layers: list[dict[str, Any] | None]) -> None:
    made = [
        Layer(str(i), str(i), None if data is None else Document({"x": data}, {("x", k): f"{i}:{k}" for k in data}))
        for i, data in enumerate(layers)
    ]
    config = SystemConfig(tuple(made))
    expected = {key: (value, f"{i}:{key}") for i, data in enumerate(layers) for key, value in (data or {}).items()}
    assert config.section("x").data == {key: value for key, (value, _) in expected.items()}
    shown = {s.key: s for s in config.settings() if s.key.startswith("x.")}
    assert {key: (s.value, s.origin) for key, s in shown.items()} == {f"x.{k}": v for k, v in expected.items()}
    assert sum(1 + len(s.overrode) for s in shown.values()) == sum(len(data or {}) for data in layers)


WRONG = {
    "an unknown key": (
        "workspace: x\npulgins: []\n",
        "primus.yaml:2: unknown key 'pulgins'",
        "did you mean 'plugins'?",
    ),
    "variables": ("env: {A: 1}\n", "primus.yaml:1: unknown key 'env'", "`direct: {env: [NAME=VALUE]}`"),
    "a misspelt runtime": ("dirct: {numa: true}\n", "primus.yaml:1: unknown key 'dirct'", "did you mean 'direct'?"),
    "an unknown key of hooks": (
        "hooks:\n  folders: []\n  folder: x\n",
        "primus.yaml:3: unknown key 'hooks.folder'",
        "did you mean 'folders'?",
    ),
    "a text for a list": ("plugins: a.py\n", "primus.yaml:1: `plugins` takes a list of paths", "it is 'a.py'"),
    "numbers in a list": ("hooks:\n  patches: [1]\n", "primus.yaml:2: `hooks.patches` takes a list of paths", "[1]"),
    "a list for a text": ("\nworkspace: [a]\n", "primus.yaml:2: `workspace` takes a path", "['a']"),
    "a list for hooks": ("hooks: [a]\n", "primus.yaml:1: `hooks` takes keys and values", "['a']"),
    "a text for a runtime": ("direct: numa\n", "primus.yaml:1: `direct` takes keys and values", "'numa'"),
    "a time of zero": ("hooks: {timeout_s: 0}\n", "primus.yaml:1: `hooks.timeout_s` takes a number of seconds", "is 0"),
    "a time that is on": ("hooks: {timeout_s: true}\n", "`hooks.timeout_s` takes a number of seconds", "True"),
    "an unknown key of watch": (
        "watch: {slow_rnak: 2}\n",
        "primus.yaml:1: unknown key 'watch.slow_rnak'",
        "did you mean 'slow_rank'?",
    ),
    "a factor of one": ("watch: {slow_step: 1}\n", "primus.yaml:1: `watch.slow_step` takes a factor above 1", "is 1"),
    "a missing file": ("plugins: [no.py]\n", "primus.yaml:1: there is no file 'no.py'", "relative to this file"),
    "a missing folder": ("hooks: {folders: [no]}\n", "primus.yaml:1: there is no folder 'no'", "relative to this file"),
    "a missing profile": ("profile: no.toml\n", "primus.yaml:1: there is no file 'no.toml'", "looked for"),
    "one option twice": ("direct:\n  log-file: a\n  log_file: b\n", "primus.yaml:3: 'log-file' is set twice", "-"),
    "no YAML": ("a: b: c\n", "primus.yaml:1: this is not valid YAML", ""),
    "a list at the top": ("- a\n", "primus.yaml:1: the file must hold keys and values", ""),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_in_a_file_is_told_with_its_line(case: str, home: Path) -> None:
    text, *expected = WRONG[case]
    message = refused(home, text)
    assert all(part in message for part in expected), message


def test_a_wrong_file_ends_the_command_with_exit_code_2(primus: Run, tmp_path: Path) -> None:
    write(tmp_path / "primus.yaml", "pulgins: []\n")
    result = primus("plugins")
    assert result.returncode == 2
    assert "primus.yaml:1: unknown key 'pulgins'" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_that_config_names_must_be_there(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*more\.yaml"):
        load(host(home), "more.yaml")


def test_an_empty_key_says_nothing_or_none(home: Path) -> None:
    write(home / ".primus.yaml", "workspace: /runs\nhooks: {timeout_s: 5}\ndirect: {numa: true}\n")
    write("primus.yaml", "plugins:\nworkspace:\nhooks:\ndirect:\n")
    config = load(host(home))
    assert (config.plugin_files, config.workspace, config.hook_timeout_s) == ((), "", 5)
    assert config.section("direct").data == {"numa": True}


def test_paths_are_relative_to_the_file_that_names_them(home: Path) -> None:
    (home / "hooks").mkdir()
    Path("deep").mkdir()
    for name in (home / "mine.py", "deep/tasks.py", "deep/fix.sh", "gpu.toml"):
        write(name, "")
    write(home / ".primus.yaml", "hooks: {folders: [hooks, ~/hooks]}\nworkspace: ../runs\n")
    write("deep/more.yaml", "plugins: [tasks.py, ~/mine.py]\nhooks: {patches: [./fix.sh]}\nprofile: ../gpu.toml\n")
    config = load(host(home), "deep/more.yaml")
    work = os.getcwd()
    assert config.hook_folders == (f"{home}/hooks",)
    assert config.workspace == f"{home.parent}/runs"
    assert config.plugin_files == (f"{work}/deep/tasks.py", f"{home}/mine.py")
    assert config.patches == (f"{work}/deep/fix.sh",)
    assert config.profile == f"{work}/gpu.toml"


def test_without_home_its_layer_is_absent_and_a_tilde_is_refused(home: Path) -> None:
    write("primus.yaml", "workspace: /runs\n")
    config = load(host(""))
    assert config.workspace == "/runs"
    assert (config.layers[0].path, config.layers[0].document) == ("", None)
    write("primus.yaml", "workspace: ~/runs\n")
    with pytest.raises(ConfigError, match=r"primus.yaml:1: '~/runs' needs HOME"):
        load(host(""))


def test_a_variable_of_the_environment_is_filled_in(home: Path) -> None:
    write("primus.yaml", "workspace: ${SCRATCH}/runs\n")
    assert load(HostRoot(environ={"SCRATCH": "/scratch"})).workspace == "/scratch/runs"
    with pytest.raises(ConfigError, match=r"primus.yaml:1: .*SCRATCH"):
        load(host(home))


# A runtime's section.


def runtime() -> Parser:
    parser = Parser(prog="primus toy")
    parser.add_argument("--env", action="append", default=[], metavar="K=V|FILE")
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--numa", action="store_true")
    parser.add_argument("--no-numa", dest="numa", action="store_false")
    parser.add_argument("--grace-period", type=float, default=8.0)
    parser.add_argument("--log_file", metavar="FILE", default="")
    parser.add_argument("--mode", choices=["fast", "slow"])
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--need", required=True)
    return parser


def parsed(data: dict[str, Any], *words: str) -> Any:
    parser = runtime()
    apply_defaults(parser, Document({"need": "x", **data}, {(): "/etc/p.yaml:1"}))
    return parse_segment(parser, words)


def test_a_section_gives_an_options_default_and_the_command_line_wins() -> None:
    data = {"grace-period": 30, "mode": "slow", "sizes": [1, 2], "single": True, "numa": True}
    args = parsed(data)
    assert (args.grace_period, args.mode, args.sizes, args.single, args.numa) == (30.0, "slow", [1, 2], True, True)
    words = ("--grace-period", "2", "--mode", "fast", "--sizes", "3", "--no-single", "--no-numa", "--need", "y")
    args = parsed(data, *words)
    assert (args.grace_period, args.mode, args.sizes, args.single, args.numa) == (2.0, "fast", [3], False, False)
    assert args.need == "y"


def test_no_numa_true_is_numa_false() -> None:
    assert parsed({"no-numa": True}).numa is False
    assert parsed({"no-numa": False}).numa is True
    assert parsed({"numa": False}).numa is False


def test_a_repeatable_option_keeps_the_files_values_and_adds_those_of_the_command_line() -> None:
    assert parsed({"env": ["A=1", "B=2"]}, "--env", "A=3").env == ["A=1", "B=2", "A=3"]
    assert parsed({}, "--env", "A=3").env == ["A=3"]


def test_an_options_file_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    write(tmp_path / "vars", "")
    parser = runtime()
    data = {"need": "x", "log-file": "a.log", "env": ["vars", "HOME", "A=vars"]}
    apply_defaults(parser, Document(data, {(): f"{tmp_path}/p.yaml:3"}))
    args = parse_segment(parser, ())
    assert args.log_file == f"{tmp_path}/a.log"
    assert args.env == [f"{tmp_path}/vars", "HOME", "A=vars"]


WRONG_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown option": ({"grace": 1}, "`primus toy` has no option 'grace'"),
    "a misspelt option": ({"grace-perod": 1}, "did you mean 'grace-period'?"),
    "help": ({"help": True}, "no option 'help'"),
    "a text for a switch": ({"single": "yes"}, "'single' must be true or false"),
    "a switch for a number": ({"grace-period": True}, "'grace-period' takes a value"),
    "a text for a number": ({"grace-period": "soon"}, "'grace-period' is 'soon'"),
    "a text for a list": ({"env": "A=1"}, "'env' takes a list"),
    "a mapping for a list": ({"env": {"A": 1}}, "'env' takes a list"),
    "a list for a text": ({"log-file": ["a"]}, "'log-file' takes FILE"),
    "no choice": ({"mode": "fats"}, "did you mean 'fast'?"),
}


@pytest.mark.parametrize("case", WRONG_OPTIONS)
def test_an_option_that_cannot_take_its_value_is_told_with_the_line(case: str) -> None:
    data, expected = WRONG_OPTIONS[case]
    with pytest.raises(ConfigError) as caught:
        parsed(data)
    assert expected in str(caught.value)
    assert str(caught.value).startswith("/etc/p.yaml:1: ")


def test_a_runtime_that_passes_options_on_gets_the_unknown_ones_as_words() -> None:
    parser = runtime()
    parser.rest_to("flags")
    data = {"need": "x", "partition": "gpu", "exclusive": True, "requeue": False, "volume": ["/a", "/b"]}
    words = apply_defaults(parser, Document(data))
    assert words == ("--partition=gpu", "--exclusive", "--volume=/a", "--volume=/b")
    assert parse_segment(parser, (*words, "--time=1")).flags == [*words, "--time=1"]


# The command that shows it.


def test_config_system_shows_each_value_with_its_origin_and_what_it_won_over(primus: Run, tmp_path: Path) -> None:
    write(tmp_path / ".primus.yaml", "workspace: here\ndirect: {grace-period: 9}\n")
    write(tmp_path / "primus.yaml", "hooks: {timeout_s: 60}\nworkspace: there\n")
    result = primus("config", "system", env={"HOME": str(tmp_path)})
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split() for line in lines if "timeout_s" in line] == [
        ["hooks.event_timeout_s", "30", "packaged"],
        ["hooks.timeout_s", "60", "primus.yaml:1"],
    ]
    assert "                              over 3600 (packaged)" in lines
    assert f"  ~/.primus.yaml  {tmp_path}/.primus.yaml" in lines
    found = json.loads(primus("config", "system", "--json", env={"HOME": ""}).stdout)
    assert [(layer["name"], layer["exists"]) for layer in found["layers"]] == [
        ("packaged", True),
        ("~/.primus.yaml", False),
        ("./primus.yaml", True),
    ]
    assert {"key": "hooks.event_timeout_s", "value": 30, "origin": "packaged", "overrode": []} in found["settings"]


def test_a_runtime_of_ours_that_may_be_missing_here_may_have_a_section_and_no_other_one(
    primus: Run, tmp_path: Path
) -> None:
    write(tmp_path / "primus.yaml", "slurm: {partition: gpu}\ncontainer: {cpus: 4}\n")
    assert primus("direct", "--dry-run", "--", "nothing").stderr.startswith("primus: error: segment 2: no task")
    write(tmp_path / "primus.yaml", "slrm: {partition: gpu}\n")
    refused = primus("direct", "--dry-run", "--", "nothing")
    assert "primus.yaml:1: unknown key 'slrm'" in refused.stderr
    assert "did you mean 'slurm'?" in refused.stderr


def test_config_system_does_not_show_the_value_of_a_secret_variable(primus: Run, tmp_path: Path) -> None:
    (tmp_path / "primus.yaml").write_text("container: {image: registry/known-elsewhere-9f:1}\n")
    result = primus("config", "system", cwd=tmp_path, env={"DB_PW": "known-elsewhere-9f"})
    assert "registry/<secret>:1" in result.stdout
    assert "known-elsewhere" not in result.stdout + result.stderr


def test_config_system_checks_every_runtimes_options_and_shows_no_secret(primus: Run, tmp_path: Path) -> None:
    write(tmp_path / "more.yaml", "direct:\n  env: [HF_TOKEN=abcdefgh]\n  numma: true\n")
    result = primus("config", "system", "--config", "more.yaml")
    assert result.returncode == 2
    assert "more.yaml:3: `primus direct` has no option 'numma'" in result.stderr
    write(tmp_path / "more.yaml", "direct:\n  env: [HF_TOKEN=abcdefgh]\n")
    result = primus("config", "system", "--config", "more.yaml")
    assert result.returncode == 0
    assert "HF_TOKEN=<secret>" in result.stdout
    assert "abcdefgh" not in result.stdout


@pytest.mark.parametrize("flag", ["hf-token: abcdefgh", "api_key: [abcdefgh]", "comment: https://me:abcdefgh@host/x"])
@pytest.mark.full
def test_a_flag_that_is_passed_on_is_shown_without_its_secret(flag: str, primus: Run, tmp_path: Path) -> None:
    write(tmp_path / "primus.yaml", f"slurm: {{partition: gpu, {flag}}}\n")
    write(tmp_path / "more.yaml", "slurm: {hf-token: other}\n")
    for words in (["config", "system"], ["config", "system", "--json"], ["--config", "more.yaml", "config", "system"]):
        result = primus(*words)
        assert result.returncode == 0, result.stderr
        assert "gpu" in result.stdout
        assert "<secret>" in result.stdout
        assert "abcdefgh" not in result.stdout
        assert "other" not in result.stdout.replace("the others", "")


@pytest.mark.full
def test_global_options_go_before_a_management_command_that_can_use_them(primus: Run, tmp_path: Path) -> None:
    write(tmp_path / "more.yaml", "workspace: there\n")
    assert f"{tmp_path}/there" in primus("--config", "more.yaml", "config", "system").stdout
    assert primus("--config=nothing.yaml", "config", "system").returncode == 2
    assert primus("--debug", "plugins").returncode == 0
    wrong = primus("--dry-run", "--config", "more.yaml", "plugins", "--json")
    assert wrong.returncode == 2
    assert "--dry-run needs a runtime, and 'plugins' is not a runtime" in wrong.stderr
    assert "fix: remove it: primus --config more.yaml plugins --json" in wrong.stderr
    assert "there is no run 'x'" in primus("--debug", "--config", "more.yaml", "replay", "x").stderr


@pytest.mark.torch
@pytest.mark.full
def test_runs_are_where_the_system_config_says(primus: Run, tmp_path: Path) -> None:
    make(tmp_path / "there", "a_2026_01_01_000000")
    write(tmp_path / "primus.yaml", "workspace: there\n")
    assert "a_2026_01_01_000000" in primus("runs", "list").stdout
    assert primus("runs", "path", "a").stdout == f"{tmp_path}/there/a_2026_01_01_000000\n"
    assert "its status is completed" in primus("stop", "latest").stderr
    assert primus("runs", "path", "a", "--workspace", "here").returncode == 2


def test_a_run_is_made_in_the_workspace_of_the_site(primus: Run, tmp_path: Path) -> None:
    write(tmp_path / "primus.yaml", "workspace: there\nplugins: [tasks.py]\n")
    write(tmp_path / "tasks.py", "from primus_core import register_task\n"
          "@register_task('hello')\ndef hello(call):\n    'Say hello.'\n")  # fmt: skip
    assert primus("direct", "--", "hello").returncode == 0
    assert (tmp_path / "there/hello/metadata.json").exists()
    assert not (tmp_path / "output").exists()


SITE = """
models: [./mine.yaml]
plugins: [./tasks.py]
workspace: there
"""
MINE = """
models:
  mine_1B: {num_layers: 4, hidden_size: 64, ffn_hidden_size: 128, num_attention_heads: 4, vocab_size: 512,
            max_position_embeddings: 4096, source: [own], num_kv_heads: 4, rope_theta: 10000, norm_eps: 1.0e-5,
            tie_embeddings: false}
"""
TRAINING = """
exp_name: x
modules: {pre_trainer: {framework: torchtitan, model: mine_1B, data: {text: python-stdlib, vocab_size: 512}}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A file of the system config, away from the folder of the command, and an experiment that needs it."""
    (tmp_path / "site").mkdir()
    write(tmp_path / "site/site.yaml", SITE)
    write(tmp_path / "site/mine.yaml", MINE)
    write(tmp_path / "site/tasks.py", "from primus_core import register_task\n"
          "@register_task('where')\ndef where(call):\n    'Say the last file.'\n    import os\n"
          "    print(os.environ.get('PRIMUS_CONFIG'))\n")  # fmt: skip
    write(tmp_path / "exp.yaml", TRAINING)
    return tmp_path / "site/site.yaml"


@pytest.mark.whole
@pytest.mark.torch
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("models", "show", "mine_1B"), "mine_1B"),
        (("config", "validate", "exp.yaml"), "exp.yaml is valid"),
        (("config", "show", "exp.yaml", "--resolved"), "model.dim"),
        (("direct", "--dry-run", "--", "train", "pretrain", "--config", "exp.yaml"), "primus_core.programs.torchrun"),
        (("direct", "--dry-run", "--", "bench", "gemm", "--seq-len", "64", "--model", "mine_1B"), "=64x"),
        (("plugins",), "where"),
        (("runs", "list"), "no runs in"),
    ],
)
@pytest.mark.full
def test_every_command_reads_the_file_that_config_names(
    primus: Run, site: Path, words: tuple[str, ...], said: str
) -> None:
    without = primus(*words)
    for result in (primus("--config", str(site), *words), primus(*words, env={"PRIMUS_CONFIG": str(site)})):
        assert result.returncode == 0, result.stderr
        assert said in result.stdout
        assert result.stdout != without.stdout


def test_the_processes_of_a_run_read_the_same_file(primus: Run, site: Path) -> None:
    result = primus("--config", "site/site.yaml", "direct", "--single", "--", "where")
    assert result.stdout == f"{site}\n", result.stderr


LEAKY = {
    "a mapping for a list": "direct: {env: {HF_TOKEN: abcdefgh}}\n",
    "a text for a list": "direct: {env: 'HF_TOKEN=abcdefgh'}\n",
    "a list of mappings": "direct: {env: [{HF_TOKEN: abcdefgh}]}\n",
    "a text for a number": "direct: {grace-period: 'api_key=abcdefgh'}\n",
    "a text for a runtime": "direct: 'HF_TOKEN=abcdefgh'\n",
    "a mapping for a path": "workspace: {password: abcdefgh}\n",
    "a mapping in a list": "plugins: [{password: abcdefgh}]\n",
    "a mapping for a time": "hooks: {timeout_s: {db_pass: abcdefgh}}\n",
    "a path with a password": "profile: https://me:abcdefgh@host/gpu.toml\n",
}


@pytest.mark.parametrize("case", LEAKY)
def test_an_error_about_a_file_does_not_repeat_a_secret_in_it(case: str, primus: Run, tmp_path: Path) -> None:
    write(tmp_path / "x.yaml", LEAKY[case])
    result = primus("config", "system", "--config", "x.yaml")
    assert result.returncode == 2
    assert "x.yaml:1: " in result.stderr
    assert "<secret>" in result.stderr
    assert "abcdefgh" not in result.stdout + result.stderr
