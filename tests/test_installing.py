"""What pip does to an environment when it installs our packages. All others are stubs: nothing is downloaded."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests import python312
from tests.conftest import ROOT, plain_environ
from tests.once import once
from tests.packages import PACKAGES, build, fits, project, stub, stubs

HERE = ".".join(map(str, sys.version_info[:2]))
BACKENDS = [
    path.name.removeprefix("primus-") for path in PACKAGES if "primus.backends" in project(path).get("entry-points", {})
]
# Builds for ROCm, as PyTorch and AMD have named them and their Triton; and a newer build for others, which pip prefers.
OF_AMD = {
    "old": {"torch": "2.9.1+rocm6.4", "pytorch-triton-rocm": "3.5.1"},
    "from source": {"torch": "2.13.0a0+git1a2b3c4", "triton": "3.4.0+rocm7.0.0"},
    "tested": {"torch": "2.13.0+rocm7.2", "triton-rocm": "3.7.1"},
}
NEWER = {"torch": "2.14.1", "triton": "3.9.0", "jax": "0.99.0"}


def pip(*words: str | Path, python: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Pip, offline and without this machine's settings, for an environment (none: this one)."""
    environ = {name: value for name, value in plain_environ().items() if not name.startswith("PIP_")}
    command = [sys.executable, "-m", "pip", *(["--python", python] if python else []), *words]
    return subprocess.run([str(word) for word in command], env={**environ, "PIP_CONFIG_FILE": os.devnull}, cwd=ROOT,
                          text=True, capture_output=True, check=False, timeout=600)  # fmt: skip


def installed(python: Path) -> dict[str, str]:
    """Every package of an environment, with its version."""
    listed = pip("list", "--format=json", python=python)
    assert listed.returncode == 0, listed.stderr
    return {row["name"].lower().replace("_", "-"): row["version"] for row in json.loads(listed.stdout)}


@pytest.fixture(scope="session")
def offered(tmp_path_factory: pytest.TempPathFactory) -> tuple[str | Path, ...]:
    """The words that offer our wheels and the stubs to pip."""

    def make(folder: Path) -> None:
        stubs(folder)
        for name, version in NEWER.items():
            stub(folder, name, version)
        for versions in OF_AMD.values():
            for name, version in versions.items():
                stub(folder, name, version)

    others, ours = once(tmp_path_factory, "stubs", make), once(tmp_path_factory, "wheels", build)
    return ("install", "--quiet", "--no-compile", "--no-index", "--find-links", others, "--find-links", ours)


def environments() -> Iterator[object]:
    """A Python of each version that we support."""
    for version in ("3.11", "3.12"):
        yield pytest.param(version, marks=[] if version == HERE else [pytest.mark.full])


@pytest.fixture(params=environments())
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Of a new environment."""
    found = Path(sys.executable) if request.param == HERE else python312.find(request.param)
    if not found:
        pytest.skip(f"no Python {request.param}")
    subprocess.run([found, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    return tmp_path / "env/bin/python"


def ours(python: Path) -> Sequence[str]:
    """The packages that are for it."""
    version = subprocess.run([python, "-c", "import platform; print(platform.python_version())"], text=True,
                             capture_output=True, check=True).stdout.strip()  # fmt: skip
    return [package.name for package in PACKAGES if fits(package, version)]


@pytest.mark.full
@pytest.mark.parametrize("build_of_torch", OF_AMD)
def test_installing_a_backend_leaves_a_build_for_rocm_alone(
    offered: tuple[str | Path, ...], python: Path, build_of_torch: str
) -> None:
    there = OF_AMD[build_of_torch]
    assert pip(*offered, *(f"{name}=={version}" for name, version in there.items()), python=python).returncode == 0
    names = ours(python)
    done = pip(*offered, *names, python=python)
    assert done.returncode == 0, done.stderr
    found = installed(python)
    assert set(names) <= set(found)
    assert {name: version for name, version in found.items() if re.search("torch$|triton", name)} == there
    if build_of_torch == "old":  # what is offered would replace it, if anything asked for torch
        replaced = pip(*offered, "--dry-run", "--report", "-", "primus-torchtitan[torch]", python=python)
        assert {what["metadata"]["name"] for what in json.loads(replaced.stdout)["install"]} >= {"torch", "triton"}


@pytest.mark.full
def test_without_any_torch_the_extra_brings_one(offered: tuple[str | Path, ...], python: Path) -> None:
    done = pip(*offered, "primus-torchtitan[torch]", python=python)
    assert done.returncode == 0, done.stderr
    assert installed(python)["torch"] == NEWER["torch"]


@pytest.mark.full
def test_a_jax_that_is_constrained_stays(offered: tuple[str | Path, ...], python: Path, tmp_path: Path) -> None:
    if "primus-maxtext" not in ours(python):
        pytest.skip("primus-maxtext needs Python 3.12: hatch run maxtext:test")
    there = {"jax": "0.11.2", "jax-rocm7-plugin": "0.11.2"}
    for name, version in there.items():
        stub(tmp_path, name, version)
    pins = [f"{name}=={version}" for name, version in there.items()]
    assert pip(*offered, "--find-links", tmp_path, *pins, python=python).returncode == 0
    (tmp_path / "here.txt").write_text("\n".join(pins))
    done = pip(*offered, "-c", tmp_path / "here.txt", "primus-maxtext", python=python)
    assert done.returncode == 0, done.stderr
    assert installed(python).items() >= there.items()


def test_the_extras_of_the_root_are_the_versions_that_are_tested() -> None:
    settings, environments = (
        tomllib.loads((ROOT / f"{name}.toml").read_text(encoding="utf-8")) for name in ("pyproject", "hatch")
    )
    extras = settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["extras"]
    tested = {need for env in environments["envs"].values() for need in env.get("dependencies", ())}
    assert {*extras["torch"], *extras["jax"]} <= tested


@pytest.mark.full
def test_pip_at_the_root_installs_the_packages(offered: tuple[str | Path, ...], tmp_path: Path) -> None:
    """It is only asked what it would do: which versions are offered is not what this is about."""
    report = tmp_path / "report.json"
    done = pip(*offered, "--no-build-isolation", "--ignore-requires-python", "--ignore-installed", "--dry-run",
               "--report", report, f".[{','.join(BACKENDS)}]")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {
        what["metadata"]["name"]: what["download_info"]["url"] for what in json.loads(report.read_text())["install"]
    }
    assert {path.name for path in PACKAGES} <= found.keys()
    last = {found[path.name].rpartition("/")[2] for path in PACKAGES}
    assert not any("-" in name for name in last), "pip would keep these wheels, and install them again after a git pull"


@pytest.mark.full
@pytest.mark.parametrize("kind", ["*.tar.gz", "*.whl"])
def test_sdists_and_wheels_install_as_others_do_it(
    tmp_path_factory: pytest.TempPathFactory, python: Path, kind: str
) -> None:
    """From the registry, all that builds them and that they need; frameworks, of gigabytes, are left out."""
    folder = once(tmp_path_factory, "wheels", build)
    files = [file for name in ours(python) for file in folder.glob(name.replace("-", "_") + "-" + kind)]
    light = [file for file in files if not any(name in file.name for name in BACKENDS)]
    for words in (light, ["--no-deps", *files]):
        command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *words]
        subprocess.run([str(word) for word in command], check=True, timeout=900)
    helped = subprocess.run([python.with_name("primus"), "--help"], text=True, capture_output=True, check=True)
    assert "preflight" in helped.stdout


@pytest.mark.full
@pytest.mark.parametrize("name", BACKENDS)
def test_where_python_is_too_old_no_framework_is_looked_for(
    tmp_path_factory: pytest.TempPathFactory, python: Path, name: str
) -> None:
    """An older pip looks for a framework first, and would say that it has no version, and not that Python is too old."""
    if f"primus-{name}" in ours(python):
        pytest.skip("it is for this Python")
    (wheel,) = once(tmp_path_factory, "wheels", build).glob(f"primus_{name}-*.whl")
    (about,) = importlib.metadata.Distribution.discover(path=[str(wheel)])
    needs = [Requirement(need) for need in about.requires or ()]
    version = next(v for v in ("3.11", "3.12") if f"python{v}" in os.listdir(python.parents[1] / "lib"))
    asked = {
        need.name for need in needs if not need.marker or need.marker.evaluate({"python_version": version, "extra": ""})
    }
    assert not {name, f"{name}-core"} & asked
    refused = pip("install", "--no-index", "--no-deps", wheel, python=python)
    assert re.search(r"requires a different Python: [\d.]+ not in '>=3.12'", refused.stderr)
