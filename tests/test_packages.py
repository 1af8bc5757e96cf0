"""The packages as others get them: wheels from their sdists, installed into clean environments outside the checkout."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.conftest import ROOT
from tests.once import once
from tests.packages import PACKAGES, build, fits, project

pytestmark = pytest.mark.full


def run(*words: str | Path, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A process, finished."""
    return subprocess.run(
        [str(w) for w in words], env=env, cwd=cwd, text=True, capture_output=True, check=False, timeout=900
    )


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every package, built, by name."""
    folder = once(tmp_path_factory, "wheels", build)
    return {path.name.split("-")[0].replace("_", "-"): path for path in folder.glob("*.whl")}


def of(wheels: dict[str, Path], *names: str) -> list[Path]:
    """The wheels of `primus-<name>`."""
    return [wheels[f"primus-{name}"] for name in names]


@dataclass(frozen=True)
class Environment:
    """A virtual environment. `pip` is the beginning of a command that works on it."""

    bin: Path
    pip: tuple[str | Path, ...]


Install = Callable[..., Environment]


def clean(folder: Path, *install: str | Path) -> Environment:
    """A clean environment with `install` in it, for which pip downloads all that is needed."""
    venv.create(folder, with_pip=True)
    # Compiling all of torch takes longer than compiling what a test imports.
    subprocess.run(
        [folder / "bin/pip", "install", "--quiet", "--no-compile", *map(str, install)], check=True, timeout=900
    )
    return Environment(folder / "bin", (folder / "bin/pip",))


def linked(folder: Path, *install: str | Path) -> Environment:
    """The same without a download: all that pip needs for `install` is linked from the running environment, no more."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    needs = [need for what in install for need in ([what] if isinstance(what, str) else requirements(what))]
    for package in closure(needs):
        link(package, site)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin/python")
    subprocess.run([*pip, "install", "--quiet", "--no-compile", "--no-index", *install], check=True, timeout=900)
    return Environment(folder / "bin", pip)


def requirements(wheel: Path) -> list[str]:
    """What a wheel says that it needs."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])


def closure(needs: Iterable[str]) -> list[Distribution]:
    """The packages of the running environment that `needs` mean, and what these need in turn; none of ours."""
    found: dict[str, Distribution] = {}
    open_ = [(Requirement(need), frozenset[str]()) for need in needs]
    seen = set()
    while open_:
        need, extras = open_.pop()
        name = canonicalize_name(need.name)
        wanted = not need.marker or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if not wanted or name in {path.name for path in PACKAGES} or (name, *need.extras) in seen:
            continue
        seen.add((name, *need.extras))
        found[name] = distribution(name)
        open_ += [(Requirement(text), frozenset(need.extras)) for text in found[name].requires or ()]
    return list(found.values())


def link(package: Distribution, site: Path) -> None:
    """The package's files, without its commands. File by file, since packages share folders."""
    for file in package.files or ():
        if ".." not in file.parts:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).symlink_to(file.locate())


@pytest.fixture(
    scope="module",
    params=["linked", pytest.param("clean", marks=pytest.mark.full)],
)
def environment(request: pytest.FixtureRequest) -> Install:
    """Makes an environment; each night, as others do it."""
    return clean if request.param == "clean" else linked


@pytest.fixture(scope="module")
def kernel_alone(
    wheels: dict[str, Path], environment: Install, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """An environment with the kernel, for the tests that change nothing in it: one worker runs them."""
    return environment(tmp_path_factory.mktemp("kernel") / "env", *of(wheels, "machine", "core"))


@pytest.fixture(scope="module")
def for_backends(
    wheels: dict[str, Path], environment: Install, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """An environment with what backends need, and none of them."""
    place = tmp_path_factory.mktemp("training") / "env"
    return environment(place, *of(wheels, "machine", "core", "runs", "train", "data"))


@pytest.mark.smoke
def test_every_package_has_what_a_package_has(wheels: dict[str, Path]) -> None:
    assert set(wheels) == {path.name for path in PACKAGES}
    for package in PACKAGES:
        said = project(package)
        assert re.fullmatch(r"\d+\.\d+\.\d+", said["version"])
        assert said["license"] == "Apache-2.0"
        assert (package / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
        assert f"## {said['version']}" in (package / "CHANGELOG.md").read_text()
        assert (package / "README.md").read_text().startswith(f"# {package.name}\n")
        names = zipfile.ZipFile(wheels[package.name]).namelist()
        assert f"{package.name.replace('-', '_')}/py.typed" in names
        assert any(name.endswith("licenses/LICENSE") for name in names)
        assert not [name for name in names if "tests" in name or name.endswith(".pyc")]
        sources = subprocess.run(
            ["git", "ls-files", "src"], cwd=package, text=True, capture_output=True, check=True
        ).stdout
        assert {name.removeprefix("src/") for name in sources.split()} <= set(names), "an sdist that lacks a file"


@pytest.mark.smoke
def test_each_depends_on_ranges_of_those_of_ours_that_it_imports_and_the_lowest_on_none() -> None:
    for package in PACKAGES:
        others = [need for need in project(package)["dependencies"] if need.startswith("primus-")]
        sources = "".join(path.read_text() for path in package.glob("src/**/*.py"))
        imported = {name.replace("_", "-") for name in re.findall(r"^ *(?:from|import) (primus_\w+)", sources, re.M)}
        brought = {"primus-runs"} if package.name in ("primus", "primus-train") else set()
        brought |= {"primus-container", "primus-slurm"} if package.name == "primus" else set()
        ours = {path.name for path in PACKAGES} - {package.name}
        assert {need.removesuffix(">=0.1,<0.2") for need in others} == imported & ours | brought, package.name
        assert not others or package.name != "primus-machine"


@pytest.mark.xdist_group("kernel alone")
def test_the_kernel_alone_helps_and_says_what_to_install(
    kernel_alone: Environment, tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    made = kernel_alone
    helped = run(made.bin / "primus", "--help", cwd=tmp_path, env=clean_environ)
    assert helped.returncode == 0
    assert (
        "none is installed. To train a model: in a checkout of Primus: pip install packages/primus-runs"
        in helped.stdout
    )
    train = "train pretrain --config exp.yaml"
    runs = "primus-runs packages"
    absent = {"primus-preflight": "direct -- preflight", f"{runs}/primus-train": f"direct -- {train}"}
    absent[f"{runs}/primus-container packages/primus-slurm packages/primus"] = "direct -- run train.py"
    bench = "primus-page packages/primus-runs packages/primus-train packages/primus-data packages/primus-bench"
    absent[bench] = "direct -- bench gemm -M 8"
    absent["primus-container"] = f"container --image IMAGE -- {train}"
    absent["primus-slurm"] = f"slurm srun -N 2 -- {train}"
    for package, words in ((package, task.split()) for package, task in absent.items()):
        asked = run(made.bin / "primus", *words, cwd=tmp_path, env=clean_environ)
        assert asked.returncode == 3
        assert f"fix: in a checkout of Primus: pip install packages/{package}" in asked.stderr
    for other in ("torchrun train.py", "run train.py"):
        asked = run(made.bin / "primus", *other.split(), cwd=tmp_path, env=clean_environ)
        assert asked.stderr.endswith("  fix: primus direct -- run train.py\n")
    commands = {"models list": f"{runs}/primus-train", "config new llama3.1_8B": f"{runs}/primus-train"}
    commands |= dict.fromkeys(("runs list", "logs latest --follow"), "primus-runs")
    commands |= dict.fromkeys(("bench compare a b", "ci list"), bench)
    commands["report latest"] = f"primus-page packages/{runs}/primus-report"
    for command, package in commands.items():
        asked = run(made.bin / "primus", *command.split(), cwd=tmp_path, env=clean_environ)
        assert (asked.returncode, f"pip install packages/{package}\n" in asked.stderr) == (3, True), asked.stderr
    frozen = run(*made.pip, "list", "--format=freeze", cwd=tmp_path, env=clean_environ).stdout
    assert re.search(r"^primus-core\b", frozen, re.M)
    assert not re.search(r"^(torch|jax|numpy)\b", frozen, re.M)
    imported = "import importlib.util as u; print(*(u.find_spec(name) for name in ('torch', 'jax', 'numpy')))"
    assert run(made.bin / "python", "-c", imported, cwd=tmp_path, env=clean_environ).stdout == "None None None\n"


@pytest.mark.xdist_group("kernel alone")
def test_the_kernel_alone_does_not_take_a_node_of_many_for_the_only_one(
    kernel_alone: Environment, tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    (tmp_path / "primus.yaml").write_text("plugins: [t.py]\nslurm: {partition: gpu}\n")
    (tmp_path / "t.py").write_text("from primus_core import register_task\n@register_task('hop')\ndef hop(call): ...\n")

    def hop(**more: str) -> subprocess.CompletedProcess[str]:
        node = {**clean_environ, "SLURM_JOB_ID": "7", "SLURM_NODEID": "1", "SLURM_NNODES": "2", **more}
        return run(kernel_alone.bin / "primus", "direct", "--dry-run", "--", "hop", cwd=tmp_path, env=node)

    refused = hop()
    assert refused.returncode == 3
    assert "this is one of 2 nodes of a job, and the scheduler 'slurm' is not installed here" in refused.stderr
    assert "pip install packages/primus-slurm\n" in refused.stderr
    by_hand = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "n1"}
    assert (hop(SLURM_NNODES="1").returncode, hop(**by_hand).returncode) == (0, 0)


@pytest.mark.xdist_group("for backends")
@pytest.mark.parametrize("framework", ["maxtext", "megatron"])
def test_a_package_for_a_newer_python_says_so_and_the_others_do_not_mind(
    wheels: dict[str, Path], for_backends: Environment, tmp_path: Path, clean_environ: dict[str, str], framework: str
) -> None:
    if fits(ROOT / f"packages/primus-{framework}"):
        pytest.skip("it is for this Python")
    made = for_backends
    refused = run(*made.pip, "install", "--no-deps", wheels[f"primus-{framework}"], cwd=tmp_path,
                  env=clean_environ)  # fmt: skip
    assert refused.returncode == 1
    assert re.search(rf"'primus-{framework}' requires a different Python: [\d.]+ not in '>=3.12'", refused.stderr)
    (tmp_path / "exp.yaml").write_text(f"exp_name: x\nmodules: {{pre_trainer: {{framework: {framework}}}}}\n")
    asked = run(made.bin / "primus", "direct", "--", "train", "pretrain", "--config", "exp.yaml", cwd=tmp_path,
                env=clean_environ)  # fmt: skip
    assert asked.returncode == 3
    version = ".".join(map(str, sys.version_info[:2]))
    assert (
        f"with Python 3.12 or later (this is {version}): in a checkout of Primus: pip install "
        "packages/primus-machine packages/primus-core packages/primus-runs packages/primus-train packages/primus-data "
        f"packages/primus-{framework}\n"
    ) in asked.stderr
    beside = run(*made.pip, "check", cwd=tmp_path, env=clean_environ)
    assert beside.returncode == 0, beside.stdout


def test_without_torch_a_benchmark_is_exit_3_and_says_what_to_install(
    wheels: dict[str, Path], environment: Install, tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    made = environment(tmp_path / "env", *of(wheels, "machine", "core", "page", "runs", "train", "data", "bench"))
    asked = run(made.bin / "primus", "direct", "--", "bench", "gemm", "-M", "64", cwd=tmp_path, env=clean_environ)
    assert asked.returncode == 3
    assert "torch" in asked.stderr
    assert "pip install" in asked.stderr
    assert not (tmp_path / "output").exists()
    (tmp_path / "primus.yaml").write_text("plugins: [t.py]\n")
    (tmp_path / "t.py").write_text(
        "from primus_core import register_task\n@register_task('hop', scope='rank')\ndef hop(call): ...\n"
    )
    hopped = run(made.bin / "primus", "direct", "--", "hop", cwd=tmp_path, env=clean_environ)
    assert hopped.returncode == 3
    assert "torchrun" in hopped.stderr
    alone = run(made.bin / "primus", "direct", "--single", "--", "hop", cwd=tmp_path, env=clean_environ)
    assert alone.returncode == 0, alone.stderr


@pytest.mark.torch
@pytest.mark.smoke
def test_all_wheels_in_an_environment_of_their_own_measure_and_plan(
    wheels: dict[str, Path], tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    measure_and_plan(linked, wheels, tmp_path, clean_environ)


@pytest.mark.torch
def test_all_wheels_in_a_clean_environment_measure_and_plan(
    wheels: dict[str, Path], tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    measure_and_plan(clean, wheels, tmp_path, clean_environ)


def measure_and_plan(
    environment: Install, wheels: dict[str, Path], tmp_path: Path, clean_environ: dict[str, str]
) -> None:
    """Install all wheels, measure a moment, and plan a training."""
    # The pin is the development environment's: a range could take a newer build of several gigabytes.
    made = environment(tmp_path / "env", "torch==2.13.0", *(wheels[path.name] for path in PACKAGES if fits(path)))
    source = "import primus_bench, primus_core; print(primus_bench.__file__, primus_core.__file__)"
    imported = run(made.bin / "python", "-c", source, cwd=tmp_path, env=clean_environ).stdout.split()
    assert [file.startswith(str(made.bin.parent)) for file in imported] == [True, True]
    result = run(made.bin / "primus", "direct", "--", "bench", "gemm", "-M", "512", "--duration", "0.5", cwd=tmp_path,
                 env=clean_environ)  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "TFLOP/s" in result.stdout
    planned = run(made.bin / "primus", "direct", "--dry-run", "--", "train", "pretrain", "--config",
                  ROOT / "examples/quickstart.yaml", cwd=tmp_path, env=clean_environ)  # fmt: skip
    assert planned.returncode == 0, planned.stderr
