"""The documentation's commands, each one run: those that would train or measure for long are planned."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import readme
from tests.bench import stand_in
from tests.conftest import ROOT, Run
from tests.data import planted

from primus_core.cli.commands import load, names
from primus_core.cli.main import main
from primus_core.cli.proposed import refusal
from primus_core.planning.options import runtime_parser, task_parser
from primus_core.plugins.catalogue import Catalogue
from primus_core.request.arguments import Parser, flags_of
from primus_machine.host import HostRoot
from primus_machine.packages import version_of

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^ {4}((?:[A-Z_]+=\S+ )*primus .*)$", re.M)
INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )*primus (?:direct|container|slurm) [^`]*)`")
STARTS = re.compile(r"\bprimus (direct|container|slurm|ci)(?: |$)(?!.*--dry-run|.*--clean)")


def commands(page: Path) -> list[str]:
    """The `primus` commands on a page that are whole (no `...`, no <placeholder>)."""
    text = page.read_text(encoding="utf-8")
    found = COMMAND.findall(text) + INLINE.findall(text)
    return [c for c in found if "..." not in c and not re.search(r"<\w+>", c) and "exp.yaml" not in c]


def planned(command: str) -> str:
    """The command without its comment; what it would start, it only plans."""
    return STARTS.sub(r"primus \1 --dry-run ", command.partition("#")[0].strip())


ALL = {planned(command): f"{page.name}: {command}" for page in PAGES for command in commands(page)}
"""Each once, on whichever page it stands."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the examples, a program, and the tasks that pages show."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    tokenizer = tmp_path / "assets/hf/Llama-3.1-8B/tokenizer.json"  # where a page's reader has downloaded it to
    tokenizer.parent.mkdir(parents=True)
    tokenizer.touch()
    for page in ("plugins", "logging"):
        blocks = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
        source = re.search(r"((?:^ {4}.*\n|^\n)+?)(?=^\S)", blocks[blocks.index("    from primus_core import") :], re.M)
        assert source
        (tmp_path / f"{page}_tasks.py").write_text(re.sub(r"^ {4}", "", source[1], flags=re.M), encoding="utf-8")
    checks = (ROOT / "docs/ci.md").read_text(encoding="utf-8").partition("    checks:\n")[2].partition("\n\n")[0]
    (tmp_path / "primus-ci.yaml").write_text(f"    checks:\n{checks}\n", encoding="utf-8")
    for name in ("before", "after"):
        (tmp_path / f"{name}.json").write_text('{"schema": 3, "benchmark": "gemm", "cases": []}', encoding="utf-8")
    (tmp_path / "slurm-4711.out").write_text("3: RuntimeError: No HIP GPUs are available\n", encoding="utf-8")
    (tmp_path / "dmesg_node17.log").write_text(
        "[1.0] amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!\n", encoding="utf-8"
    )
    (tmp_path / "job-4711").mkdir()
    (tmp_path / "job-4711/rank_0.log").write_text("OSError: [Errno 28] No space left on device\n", encoding="utf-8")
    for path, text in {
        "logs/gemm_7.txt": f"{stand_in.RECORDED}\n",
        "logs-tuned/gemm_8.txt": stand_in.RECORDED.replace("56073", "56537") + "\n",
        "tuning/tune_hipblas_gemm_results.txt": stand_in.TUNED,
    }.items():
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "signatures").mkdir()
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")  # a reader's own, which only a real run reads
    page = (ROOT / "docs/data-quality.md").read_text(encoding="utf-8")
    (tmp_path / "pipeline.yaml").write_text(page[page.index("    input:") :].partition("\n\n")[0], encoding="utf-8")
    planted.write(tmp_path / "shards")
    tmp_path.chmod(0o755)  # a container of another user enters it
    (tmp_path / "train.py").write_text("print('a program of the reader')\n", encoding="utf-8")
    (tmp_path / "primus.yaml").write_text("plugins: [./plugins_tasks.py, ./logging_tasks.py]\n", encoding="utf-8")
    return tmp_path


@pytest.mark.torch
@pytest.mark.parametrize("command", ALL, ids=ALL.values())
@pytest.mark.full
def test_a_documented_command_works(command: str, folder: Path, primus: Run, clean_environ: dict[str, str]) -> None:
    for name in ("megatron", "maxtext"):
        if name in command and not version_of(f"primus-{name}"):
            pytest.skip(f"primus-{name} needs Python 3.12: hatch run {name}:test")
    if " data " in command:
        from tests.data import examples  # the environments of other packages lack what it imports

        examples.make(folder, command)
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{clean_environ['PATH']}",
        "XDG_CONFIG_HOME": str(folder / "settings"),
    }
    words = shlex.split(command)
    if {"|", ">", "&&"} & set(words):
        result = subprocess.run(["bash", "-euo", "pipefail", "-c", command], env={**clean_environ, **environ}, cwd=folder,
                                text=True, capture_output=True, check=False, timeout=120)  # fmt: skip
    else:
        at = words.index("primus")
        environ |= {name: value for name, _, value in (word.partition("=") for word in words[:at])}
        result = primus(*words[at + 1 :], env=environ, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout or ">" in command


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", *ROOT.glob("packages/*/README.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_listed() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def test_ci_runs_what_the_readme_prints() -> None:
    """Its first command and lines of its table, in one shell; and the command for all tests."""
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    for name in ("first", "test"):
        assert re.search(rf"^stage \w+ readme {name}\b", script, re.M)
    assert readme.first_command().startswith("python3 -m venv .venv && . .venv/bin/activate && pip install ")
    assert readme.line_ending(readme.TESTS).startswith("python3 -m venv .venv && .venv/bin/pip install ")
    assert len(readme.table()) > 5


@pytest.mark.full
def test_the_readme_shows_what_a_mistake_is_told(primus: Run) -> None:
    command = "primus direct -- train pretrain --config examples/quickstart.yaml training.stpes=50"
    told = primus(*command.split()[1:], cwd=ROOT).stderr
    assert not readme.differences(readme.capture(command), told)
    assert readme.differences(["primus: error: another"], told)


@pytest.mark.parametrize("name", ["direct", "container", "slurm"])
def test_every_option_of_a_runtime_is_on_its_page(name: str) -> None:
    parser = Parser(prog="primus")
    Catalogue.here(HostRoot()).runtime(name).add_arguments(parser)
    page = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    known = {*re.findall(r"--[a-z-]+", page), "--help"}
    assert sorted(flag for flag in flags_of(parser) if flag.startswith("--") and flag not in known) == []


def examples(parser: Parser) -> Iterator[str]:
    """The `primus` commands below a help text, and those of its subcommands."""
    yield from re.findall(r"^ +(?:[A-Z_]+=\S+ )*primus (.*[^\\])$", parser.epilog or "", re.M)
    for below in parser.subcommands().values():
        yield from examples(below)


def test_every_example_of_a_help_text_is_understood(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the parsers; and a launch by its plan, in which only files of the reader may be missing."""
    catalogue = Catalogue.here(HostRoot())
    parsers = [
        *(load(name).parser() for name in names()),
        *(runtime_parser(catalogue.runtime(name)) for name in catalogue.names("runtimes")),
        *(task_parser(*catalogue.task((name,))[:2]) for name in catalogue.names("tasks")),
    ]
    monkeypatch.chdir(tmp_path)
    found = dict.fromkeys(example for parser in parsers for example in examples(parser))
    assert len(found) > 100
    for example in found:
        words = shlex.split(example.partition(" # ")[0].partition(" | ")[0].partition(" > ")[0])
        refused = refusal(words)
        assert refused is None or "invalid choice: 'megatron'" in refused.what, (example, refused)
        if "--" in words and "--help" not in words and main(["--dry-run", *words]):
            error = capsys.readouterr().err
            assert re.search(r"there is no|not found|is not set|is not a (capture|folder)", error), (example, error)


def test_every_room_of_the_kernel_stands_on_the_page_of_its_architecture_in_the_order_of_the_layers() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    [kernel] = [one for one in tools["importlinter"]["contracts"] if one.get("containers") == ["primus_core"]]
    rooms = {path.parent.name for path in (ROOT / "packages/primus-core/src/primus_core").glob("*/__init__.py")}
    layers = [[name for name in re.split(r"\s*\|\s*", layer) if name in rooms] for layer in kernel["layers"]]
    section = page.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \| \S", section, re.M)
    assert sorted(told) == sorted(name for layer in layers for name in layer)
    places = [[told.index(name) for name in layer] for layer in layers if layer]
    assert places == sorted(places), "a room stands above all that it may import"
    assert set(told) == rooms
