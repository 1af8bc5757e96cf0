"""As whom a container runs, and what another user than the person is given: `--user 4242:4242`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.conftest import ROOT, Run
from tests.core.test_trust import needs_root

from primus_container.users import chosen
from primus_core.errors import RequestError

PLAN = ("container", "--dry-run", "--json", "--engine", "docker", "--image", "IMG")


def become(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    """Be the user of this number, with the group one above."""
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.setattr(os, "getgid", lambda: uid + 1)


@pytest.mark.parametrize(
    ("uid", "engine", "wanted", "options"),
    [
        (0, "podman", "", ["user 0:0"]),  # an image may name another user, who could not write your files
        (0, "docker", "0", ["user 0"]),
        (0, "docker", "root:root", ["user root:root"]),
        (54321, "podman", "", ["userns keep-id", "env HOME=/tmp"]),
        (54321, "docker", "", ["user 54321:54322", "env HOME=/tmp", "env USER=54321"]),
        (54321, "docker", "54321", ["user 54321", "env HOME=/tmp", "env USER=54321"]),
        (54321, "podman", "54321", ["userns keep-id", "user 54321", "env HOME=/tmp", "env USER=54321"]),
        (54321, "docker", "root", ["user root"]),
        (54321, "podman", "4242:4", ["userns keep-id:uid=4242,gid=4", "user 4242:4", "env HOME=/tmp", "env USER=4242"]),
        (
            54321,
            "podman",
            "4242:video",
            ["userns keep-id:uid=4242", "user 4242:video", "env HOME=/tmp", "env USER=4242"],
        ),
    ],
)
def test_files_belong_to_the_person(
    monkeypatch: pytest.MonkeyPatch, uid: int, engine: str, wanted: str, options: list[str]
) -> None:
    become(monkeypatch, uid)
    user = chosen(wanted, engine, "/w")
    assert [" ".join(option) for option in user.options] == options
    assert not user.steps("/w/run")


@pytest.mark.parametrize(
    ("uid", "engine", "wanted", "what"),
    [
        (0, "docker", "alice", "only the image knows the number of 'alice'"),
        (0, "docker", "-5", "--user -5: not a user"),
        (0, "podman", "a:b:c", "--user a:b:c: not a user"),
        (54321, "podman", "alice:7", "only the image knows the number of 'alice'"),
        (54321, "docker", "4242", "only root can give it to another user"),
    ],
)
def test_a_user_for_whom_nothing_can_be_prepared_is_refused(
    monkeypatch: pytest.MonkeyPatch, uid: int, engine: str, wanted: str, what: str
) -> None:
    become(monkeypatch, uid)
    with pytest.raises(RequestError, match=what):
        chosen(wanted, engine, "/w")


@needs_root
@pytest.mark.parametrize("option", ["--user", "-u"])
def test_another_user_is_given_the_run_directory_and_a_home_with_the_caches(
    primus: Run, project: Path, option: str
) -> None:
    project.chmod(0o755)
    planned = primus(*PLAN, option, "4242:4243", "--", "behave", "exit", "0", cwd=project)
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    *prepared, engine = (step["argv"] for step in plan["steps"])
    directory, home = plan["place"]["directory"], f"{project}/output/.home-4242"
    assert prepared == [
        ["chmod", "o+x", "--", f"{project}/output"],
        ["find", directory, "-name", "lease", "-prune", "-o", "-exec", "chown", "-h", "4242:4243", "{}", "+"],
        ["mkdir", "-p", "-m", "700", "--", home],
        ["chown", "-h", "4242:4243", "--", home],
    ]
    assert {f"HOME={home}", "USER=4242", f"PRIMUS_CACHE={home}/.cache/primus"} <= set(engine)


@needs_root
@pytest.mark.torch
def test_a_cache_of_the_persons_that_primus_makes_is_for_the_user_inside(
    primus: Run, project: Path, tmp_path: Path
) -> None:
    project.chmod(0o755)
    words = (*PLAN, "--user", "4242", "--", "train", "pretrain", "--config", str(ROOT / "examples/quickstart.yaml"))
    cache = {"PRIMUS_CACHE": str(tmp_path / "cache")}
    made = str(tmp_path / "cache/data")
    steps = [step["argv"] for step in json.loads(primus(*words, cwd=project, env=cache).stdout)["steps"]]
    assert ["mkdir", "-p", "--", made] in steps
    assert any(argv[0] == "chown" and made in argv for argv in steps)
    Path(made).mkdir(parents=True)
    again = json.loads(primus(*words, cwd=project, env=cache).stdout)
    assert f"{made} is not writable for the user 4242" in again["notes"]


@needs_root
def test_a_folder_that_another_user_cannot_enter_is_named(primus: Run, project: Path) -> None:
    project.chmod(0o755)
    (project / "output").mkdir(mode=0o700)
    words = (*PLAN, "--user", "4242", "--", "behave", "exit", "0")
    refused = primus(*words, cwd=project)
    assert refused.returncode == 2
    assert f"the user 4242 of the container cannot enter {project}/output" in refused.stderr
    assert "it belongs to root and has the mode 0700" in refused.stderr
    (project / "output").chmod(0o711)
    assert primus(*words, cwd=project).returncode == 0


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_where_the_image_may_lack_a_named_group_the_advice_is_its_number(
    primus: Run, project: Path, engine: str
) -> None:
    project.chmod(0o755)

    def advice(user: str) -> str:
        words = ("container", "--dry-run", "--json", "--engine", engine, "--image", "lab.org/i:1", "--user", user)
        planned = primus(*words, "--", "behave", "exit", "0", cwd=project)
        return str(json.loads(planned.stdout)["steps"][-1]["advice"])

    told = "if the image has no group 'users', name it by number; this prints the groups of the image: "
    assert advice("0:users") == told + f"{engine} run --rm --entrypoint cat lab.org/i:1 /etc/group"
    assert advice("0:100") == advice("0:root") == advice("0") == ""
