"""What changes a training because a variable asks for it: packages of others, what is missing, what comes too late."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_joined_plugins import EXPERIMENT
from tests.machine import machines

from primus_machine.packages import version_of

MODE = """
from primus_core.errors import RequestError
from primus_core.plan.plan import Variable


class Slowly:
    def environment(self, training):
        if training.environ["ACME_SLOWLY"] not in ("1", "2"):
            raise RequestError("ACME_SLOWLY is neither 1 nor 2")
        why = f"{training.model} with {training.framework}"
        return (Variable("ACME_FOLDER", f"{training.workspace}/slow", "acme", why),)

    def plan(self, training, call, task):
        return task._replace(environment=(*self.environment(training), *task.environment), notes=("slowly",))


SLOWLY = Slowly()
"""


@pytest.fixture
def acme(tmp_path: Path, third_party: str) -> dict[str, str]:
    """The environment with a package that brings a mode."""
    about = tmp_path / "site/acme_slowly-1.0.dist-info"
    about.mkdir(parents=True)
    (tmp_path / "site/acme_slowly.py").write_text(MODE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-slowly\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[primus.training_modes]\nACME_SLOWLY = acme_slowly:SLOWLY\n")
    (tmp_path / "down.yaml").write_text(EXPERIMENT)
    return {"PYTHONPATH": f"{third_party}:{tmp_path / 'site'}"}


WORDS = ("train", "pretrain", "--config", "down.yaml")


@pytest.mark.full
def test_a_mode_of_another_package_changes_the_plan_where_its_variable_is_set(
    primus: Run, acme: dict[str, str], tmp_path: Path
) -> None:
    without = primus("direct", "--dry-run", "--json", "--", *WORDS, env=acme)
    assert "ACME_FOLDER" not in without.stdout
    done = primus("direct", "--dry-run", "--json", "--", *WORDS, env={**acme, "ACME_SLOWLY": "1"})
    plan = json.loads(done.stdout)
    (found,) = [one for one in plan["environment"] if one["name"] == "ACME_FOLDER"]
    assert found["value"] == f"{tmp_path}/output/slow"
    assert found["why"] == "down with countdown"
    assert plan["notes"][0] == "slowly"
    words = ("env", "explain", "ACME_FOLDER", "--config", "down.yaml", "--json")
    shown = primus(*words, env={**acme, "ACME_SLOWLY": "1"})
    assert json.loads(shown.stdout)["variables"][0]["value"] == f"{tmp_path}/output/slow"


@pytest.mark.full
def test_a_wrong_value_or_one_that_comes_too_late_is_refused(primus: Run, acme: dict[str, str]) -> None:
    done = primus("direct", "--dry-run", "--", *WORDS, env={**acme, "ACME_SLOWLY": "3"})
    assert (done.returncode, "ACME_SLOWLY is neither 1 nor 2" in done.stderr) == (2, True)
    done = primus("direct", "--env", "ACME_SLOWLY=1", "--dry-run", "--", *WORDS, env=acme)
    assert done.returncode == 2
    assert "export ACME_SLOWLY in the shell that runs primus" in done.stderr


def test_a_variable_of_ours_is_not_ignored_where_its_package_is_missing(
    primus: Run, acme: dict[str, str], tmp_path: Path
) -> None:
    machines.write(tmp_path / "none", machines.base())
    where = ("--dry-run", "--assume-host", str(tmp_path / "none"))
    done = primus("direct", *where, "--", *WORDS, env={**acme, "PRIMUS_HIPBLASLT_TUNING_STAGE": "1"})
    assert done.returncode == 3
    missing = not version_of("primus-bench")
    assert ("primus-bench is not installed here" if missing else "needs an AMD GPU") in done.stderr
