"""A result holds as long as nothing that counts has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from primus_verify.fingerprint import fingerprint


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A framework with one module, and a file that is no code."""
    folder = tmp_path / "some_framework"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "model.py").write_text("x = 1")
    (folder / "notes.txt").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def of(*texts: str, **environ: str) -> str:
    """The fingerprint of the framework."""
    return fingerprint(("some_framework",), environ, *texts)


def test_a_changed_module_a_new_one_and_another_text_count(package: Path) -> None:
    seen = {of("a"), of("b"), of("a", "b"), of("ab")}
    (package / "model.py").write_text("x = 22")
    seen.add(of("a"))
    (package / "new.py").write_text("")
    seen.add(of("a"))
    assert len(seen) == 6


def test_a_file_that_is_no_code_does_not_count(package: Path) -> None:
    before = of("a")
    (package / "notes.txt").write_text("longer")
    assert of("a") == before


def test_files_of_pythonpath_count_and_a_package_of_unknown_files_is_never_the_same(
    package: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text("x = 1")
    before = of(PYTHONPATH=f"/nowhere:{tmp_path}")
    assert of(PYTHONPATH=f"/nowhere:{tmp_path}") == before
    (tmp_path / "own.py").write_text("x = 22")
    assert of(PYTHONPATH=f"/nowhere:{tmp_path}") != before
    assert fingerprint(("no_such_package",), {}) != fingerprint(("no_such_package",), {})


def test_files_behind_links_count_and_a_link_that_leads_back_or_nowhere_is_no_matter(
    package: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (package / "layers").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(package)
    (elsewhere / ".#lock.py").symlink_to("nobody@nowhere")
    before = of()
    (elsewhere / "attention.py").write_text("x = 1")
    assert of() != before


@pytest.mark.parametrize(
    "name",
    ["NCCL_ALGO", "MAXTEXT_X", "NEW_MODEL_DESIGN", "LIBTPU_INIT_ARGS", "MAMBA_DETERMINISTIC", "ONEDNN_VERBOSE", "MIOPEN_X",
     "FLASH_ATTENTION_X", "AITER_X", "PRIMUS_DETERMINISTIC", "PRIMUS_TURBO_X", "PIPELINE_X", "OMP_NUM_THREADS",
     "LD_LIBRARY_PATH", "WHATEVER"],
)  # fmt: skip
def test_every_variable_counts_except_those_that_cannot_matter(name: str, package: Path) -> None:
    assert of(**{name: "1"}) != of() != of(**{name: "2"})


BASH = {"HOME": "/home/ada", "PATH": "/usr/bin", "LANG": "C.UTF-8", "PWD": "/w", "SHLVL": "1", "_": "/usr/bin/primus",
        "PRIMUS_RUN_DIR": "/w/output/run_1", "PRIMUS_RUN_ID": "run_1", "MASTER_PORT": "29500",
        "NCCL_DEBUG_FILE": "/w/output/run_1/nccl"}  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        {"TERM": "screen", "TMUX": "/tmp/tmux-1/default,1,0", "COLUMNS": "80", "OLDPWD": "/", "VSCODE_PID": "7",
         "TERM_PROGRAM": "vscode", "DISPLAY": ":1", "XDG_SESSION_ID": "4", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/x"},
        {"SSH_CLIENT": "10.0.0.1 50000 22", "SSH_TTY": "/dev/pts/3", "SSH_AUTH_SOCK": "/tmp/ssh-x", "LC_ALL": "C"},
        {"SLURM_JOB_ID": "17", "SLURM_NODELIST": "n1", "SLURMD_NODENAME": "n1", "TMPDIR": "/tmp/job17", "HOSTNAME": "n1",
         "PMIX_RANK": "0", "TRITON_CACHE_DIR": "/tmp/job17/triton", "KRB5CCNAME": "FILE:/tmp/krb5cc_17"},
        {"container": "docker", "HOSTNAME": "f00d", "KUBERNETES_PORT": "tcp://10.0.0.1:443", "HF_TOKEN": "secret",
         "WEB_SERVICE_HOST": "10.0.0.7", "WEB_PORT_80_TCP_ADDR": "10.0.0.7", "https_proxy": "http://p", "NO_PROXY": "x"},
        {"PRIMUS_RUN_DIR": "/w/output/run_2", "PRIMUS_RUN_ID": "run_2", "PRIMUS_PARENT": "/w/output/run_2",
         "NCCL_DEBUG_FILE": "/w/output/run_2/nccl", "MASTER_PORT": "29501", "PRIMUS_METRICS_FILE": "/w/x"},
    ],
    ids=["terminal", "ssh", "slurm", "container", "run"],
)  # fmt: skip
def test_another_terminal_job_or_run_is_no_difference(other: dict[str, str], package: Path) -> None:
    def seen(environ: dict[str, str]) -> str:
        return fingerprint(("some_framework",), environ, runs=(environ["PRIMUS_RUN_DIR"], ""))

    assert seen({**BASH, **other}) == seen(BASH)


def test_data_of_packages_count_and_so_do_contents_of_the_same_size_and_time(package: Path) -> None:
    path = package / "base.yml"
    path.write_text("a: 1")
    seen = {of()}
    times = path.stat()
    path.write_text("a: 2")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    seen.add(of())
    assert len(seen) == 2
    path.touch()
    assert of() in seen, "the same content"


def test_a_persons_own_files_count_with_all_that_stands_in_their_folders(package: Path, tmp_path: Path) -> None:
    """Hooks may read a file beside them."""
    hooks, config = tmp_path / "hooks/train", tmp_path / "primus.yaml"
    hooks.mkdir(parents=True)

    def seen() -> str:
        return fingerprint(("some_framework",), {}, own=[str(config), str(tmp_path / "hooks"), str(tmp_path / "none")])

    found = {seen()}
    for path, text in ((config, "a"), (config, "b"), (hooks / "10_env.sh", "echo"), (hooks / "flags.txt", "x")):
        path.write_text(text)
        found.add(seen())
    assert len(found) == 5


def test_a_large_file_counts_by_its_size_and_times(package: Path) -> None:
    large = package / "kernels.so"
    large.write_bytes(b"a" * (5 << 20))
    before, times = of(), large.stat()
    large.write_bytes(b"b" * (5 << 20))
    os.utime(large, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert of() != before
