"""Our packages built, and stubs of those of others: what tests of installing share."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from tests.conftest import ROOT

PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
# Not every environment has them, and what they need matters: pip may replace it.
ELSEWHERE = {"megatron-core": ["numpy", "torch>=2.6.0"], "flax": ["jax>=0.11.1", "numpy"]}


def project(package: Path) -> dict[str, Any]:
    """What its pyproject.toml says."""
    found: dict[str, Any] = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def fits(package: Path, python: str = ".".join(map(str, sys.version_info[:3]))) -> bool:
    """Whether it is for that Python: the one that runs."""
    return SpecifierSet(project(package)["requires-python"]).contains(python)


def build(folder: Path) -> None:
    """The sdists of all packages, and from these their wheels. What builds them is here already: Hatch needs it, too."""
    for package in PACKAGES:
        subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)], cwd=package,
                       check=True, capture_output=True, timeout=600)  # fmt: skip
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--ignore-requires-python",
                    "--no-build-isolation", "--wheel-dir", str(folder),
                    *map(str, folder.glob("*.tar.gz"))], check=True, timeout=600)  # fmt: skip


def stub(folder: Path, name: str, version: str, requires: Iterable[str] = ()) -> None:
    """A wheel with that name and version which holds nothing."""
    whole = f"{re.sub(r'[-_.]+', '_', name)}-{version}"
    metadata = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {need}" for need in requires)]
    with zipfile.ZipFile(folder / f"{whole}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{whole}.dist-info/METADATA", "\n".join(["Metadata-Version: 2.1", *metadata, ""]))
        wheel.writestr(f"{whole}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{whole}.dist-info/RECORD", "")


def stubs(folder: Path) -> None:
    """All packages of others that ours need, and what these need in turn, as stubs: as many as pip can choose from.

    Those that are installed here need what they really need.
    """
    here = {canonicalize_name(found.name): found for found in distributions()}
    waiting, seen = [need for package in PACKAGES for need in needs(package)], set()
    while waiting:
        need = Requirement(waiting.pop())
        name = canonicalize_name(need.name)
        if name in seen or name in {package.name for package in PACKAGES}:
            continue
        seen.add(name)
        real = here.get(name)
        asked = list(real.requires or []) if real else ELSEWHERE.get(name, [])
        # Other markers, such as python_version, count for the Python that installs, which may be another one.
        requires = [text for text in asked if not re.search(r"\bextra *==", text)]
        waiting += requires
        stub(folder, name, real.version if real else lowest(need), requires)


def needs(package: Path) -> list[str]:
    """What a package asks for, with all extras."""
    said = project(package)
    return [*said["dependencies"], *chain(*said.get("optional-dependencies", {}).values())]


def lowest(need: Requirement) -> str:
    """A version that is meant."""
    return next((one.version for one in need.specifier if one.operator in ("==", ">=", "~=")), "1")
