"""A team's old subcommand is a task, unchanged, under a runtime: by decorator, and as a module of AMD's Primus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import Run

pytestmark = pytest.mark.whole

DECORATED = """
import os
from primus.cli.registry import register_subcommand

@register_subcommand("inspect ranks")
def inspect(args, unknown_args):
    "Print what each rank got."
    print("rank", os.environ["RANK"], args.command, unknown_args, flush=True)
    if "fail" in unknown_args:
        raise SystemExit(7)
    return {"what": "was ignored, and is"}
"""
MODULE = '''
"""As primus/cli/subcommands/dig.py."""

def run(args, unknown_args):
    print(f"{args.command} {args.suite} deep={args.deep} {unknown_args}")

def register_subcommand(subparsers):
    parser = subparsers.add_parser("dig", help="Dig in the logs.")
    suites = parser.add_subparsers(dest="suite", required=True)
    gold = suites.add_parser("gold", help="Look for gold.")
    gold.add_argument("--deep", type=int, default=1)
    parser.set_defaults(func=run)
    return parser
'''


@pytest.fixture
def team(tmp_path: Path) -> Path:
    """A team's folder."""
    (tmp_path / "primus.yaml").write_text("plugins: [inspect_ranks.py, dig.py]\n")
    (tmp_path / "inspect_ranks.py").write_text(DECORATED)
    (tmp_path / "dig.py").write_text(MODULE)
    return tmp_path


def test_both_are_listed_with_their_help(primus: Run, team: Path) -> None:
    helped = primus("--help").stdout
    assert "  inspect ranks     Print what each rank got.\n" in helped
    assert "  dig               Dig in the logs.\n" in helped


@pytest.mark.full
@pytest.mark.torch
def test_a_decorated_function_runs_on_every_rank_with_all_of_its_words(primus: Run, team: Path) -> None:
    done = primus("direct", "--", "inspect", "ranks", "--shape", "a b", "$HOME", env={"GPUS_PER_NODE": "2"})
    assert done.returncode == 0, done.stderr
    [run] = team.glob("output/inspect-ranks_*")
    for rank in (0, 1):
        said = (run / f"logs/rank_{rank}.log").read_text()
        assert f"rank {rank} inspect ranks ['--shape', 'a b', '$HOME']" in said


def test_its_exit_code_is_the_commands_and_what_it_returns_is_ignored(primus: Run, team: Path) -> None:
    assert primus("direct", "--single", "--", "inspect", "ranks").returncode == 0
    failed = primus("direct", "--single", "--", "inspect", "ranks", "fail")
    assert failed.returncode == 7
    assert "exit code     7" in failed.stderr


@pytest.mark.full
def test_it_goes_into_a_container_and_a_job_as_any_task(primus: Run, team: Path) -> None:
    words = ("slurm", "--dry-run", "--json", "srun", "-N2", "--", "container", "--image", "IMG", "--")
    planned = primus(*words, "inspect", "ranks", "-x")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["inner"][-3:] == ["inspect", "ranks", "-x"]


@pytest.mark.full
def test_a_module_of_amds_primus_gets_its_arguments_parsed(primus: Run, team: Path) -> None:
    done = primus("direct", "--single", "--", "dig", "gold", "--deep", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "dig gold deep=3 []\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gold", "--deeep", "3"), "did you mean '--deep'?"),
        (("silver",), "invalid choice: 'silver'"),
        (("gold", "--deep", "x"), "invalid int value: 'x'"),
        ((), "arguments are required: suite"),
    ],
)
def test_its_wrong_arguments_are_refused_before_anything_starts(
    primus: Run, team: Path, words: tuple[str, ...], said: str
) -> None:
    refused = primus("direct", "--single", "--", "dig", *words)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert not (team / "output").exists()


@pytest.mark.full
def test_in_a_checkout_of_amds_primus_the_registry_is_ours_and_the_rest_is_theirs(primus: Run, team: Path) -> None:
    theirs = team / "primus/core"
    theirs.mkdir(parents=True)
    (team / "primus/__init__.py").write_text("raise ImportError('no registry here')\n")
    (theirs / "__init__.py").touch()
    (theirs / "thing.py").write_text("NAME = 'a thing of theirs'\n")
    (team / "inspect_ranks.py").write_text(
        DECORATED.replace("    print(", "    from primus.core.thing import NAME\n    print(NAME, ", 1)
    )
    done = primus("direct", "--single", "--", "inspect", "ranks")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a thing of theirs rank 0")
