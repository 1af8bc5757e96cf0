"""GPU profiles: what a run's environment should hold on this machine, as data in `data/profiles/*.toml`.

A profile extends another (model, vendor, base). Each row has a value, the reason, its source, and when it holds.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from primus_core.environment.profile_files import VERSIONS, Profile, listed, read
from primus_core.environment.profile_files import Row as _Row
from primus_core.installed import data_folders
from primus_core.installed.data_folders import Folder
from primus_core.plan.plan import Variable
from primus_machine.errors import ConfigError, suggestion
from primus_machine.facts import Facts
from primus_machine.files import trust
from primus_machine.gpus.devices import pci_id
from primus_machine.secrets.redaction import is_secret_name
from primus_machine.text import Note
from primus_machine.variables import GPU_MODEL

__all__ = ["Folder", "installed", "names", "outdated", "select", "variables"]

BASE = "base"
_FOLDER = os.path.join(os.path.dirname(__file__), "..", "data", "profiles")


class _Situation(NamedTuple):
    """What the conditions of rows ask about."""

    architecture: frozenset[str]
    nic: frozenset[str]
    framework: frozenset[str]
    rocm: str
    cuda: str
    deterministic: bool
    without: Mapping[str, str]
    """What the run has above the profile: a row may ask for one of these not to be there."""


def variables(
    facts: Facts,
    *,
    framework: str,
    profile_file: str = "",
    folders: Sequence[Folder] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[tuple[Variable, ...], tuple[str, ...]]:
    """What the profiles for this machine set, base first, and notes for the person.

    A name may come more than once: the later wins. `environ`: what the run has above the profile, where that is more
    than the person's own.

    Raises:
        ConfigError: a profile that is wrong, unknown, or there twice.
    """
    chain, notes = select(facts, folders, profile_file)
    situation = _situation(facts, chain, framework, facts.environ if environ is None else environ)
    found: list[Variable] = []
    for profile in chain:
        for row in (row for row in profile.rows if _holds(row.when, situation)):
            found = [v for v in found if not (row.unset and v.name == row.name)]
            found += [] if row.unset else [_variable(row, profile)]
    return tuple(found), notes


def select(
    facts: Facts, folders: Sequence[Folder] = (), profile_file: str = ""
) -> tuple[tuple[Profile, ...], tuple[str, ...]]:
    """The profiles for the GPUs of `facts`, base first, and notes. The person's own file comes last.

    Raises:
        ConfigError: a profile that is wrong, unknown, or there twice.
    """
    theirs = _theirs(folders) if facts.gpus or profile_file else {}  # a broken package is no trouble without a GPU
    mine = read(profile_file, f"profile {profile_file}", trust.of(facts.host.environ).opener) if profile_file else None
    if mine and mine.extends:  # it says what it stands on, whatever GPU is here
        return (*_chain(mine.extends, theirs, mine), mine), ()
    name, notes = _name(facts, theirs)
    chain = _chain(name, theirs)
    return (*chain, mine) if mine else chain, notes


def installed() -> tuple[Folder, ...]:
    """The folders behind the entry points of `primus.profiles`. A package is found, not imported."""
    return data_folders.installed("primus.profiles")


def names(folders: Sequence[Folder] = ()) -> frozenset[str]:
    """What profiles are called, those of packages in `folders` included."""
    return frozenset((*_built_in(), *_theirs(folders)))


def outdated(note: str, chain: Iterable[Profile]) -> bool:
    """Whether a fact's note is about a GPU that it does not know, and for which an installed profile is in `chain`."""
    return any(_about(note) == pci for profile in chain for pci in profile.pci_ids)


def _name(facts: Facts, theirs: Mapping[str, Profile]) -> tuple[str, tuple[str, ...]]:
    """Which profile the machine gets, by name."""
    model = facts.environ.get(GPU_MODEL, "").strip().lower()
    if not facts.gpus or model == "none":
        return BASE, ()
    known = {name.lower(): name for name in (*_built_in(), *theirs)}
    if facts.gpu_model.lower() in known:
        return known[facts.gpu_model.lower()], ()
    pci = Counter(pci_id(gpu.vendor, gpu.device_id) for gpu in facts.gpus).most_common(1)[0][0]
    brought = next((profile.name for profile in theirs.values() if pci in profile.pci_ids), "")
    if brought and not facts.gpu_model:
        return brought, ()
    return BASE, () if any(_about(note) in {pci, facts.gpu_model} - {""} for note in facts.notes) else (_unknown(pci),)


def _about(note: str) -> str:
    return note.about if isinstance(note, Note) else ""


def _unknown(pci: str) -> str:
    return (
        f"UNKNOWN GPU {pci}: it gets only the base profile. Set {GPU_MODEL}=<model> if it is one that Primus "
        "knows, or write a profile: docs/gpu-profiles.md"
    )


def _chain(name: str, theirs: Mapping[str, Profile], child: Profile | None = None) -> tuple[Profile, ...]:
    """The profile and all that it extends, base first. `child`: the file that named it, which the errors point at."""
    chain: list[Profile] = []
    while name:
        if name in (profile.name for profile in chain):
            circle = " > ".join([*(profile.name for profile in chain), name])
            raise ConfigError("profiles extend each other in a circle", where=chain[0].path, why=circle)
        if name not in theirs and name not in _built_in():
            raise _no_such(name, chain[-1] if chain else child, theirs)
        chain.append(theirs.get(name) or _read_built_in(name))
        name = chain[-1].extends
    return tuple(reversed(chain))


def _no_such(name: str, child: Profile | None, theirs: Mapping[str, Profile]) -> ConfigError:
    known = sorted({*_built_in(), *theirs})
    return ConfigError(
        f"unknown profile '{name}'",
        where=child.path if child else "",
        why=f"profiles: {', '.join(known)}",
        fix=suggestion(name, known) or "extend one of them",
    )


@cache
def _built_in() -> frozenset[str]:
    return frozenset(entry[:-5].replace("-", " ") for entry in os.listdir(_FOLDER) if entry.endswith(".toml"))


@cache
def _read_built_in(name: str) -> Profile:
    """By its file's name, so that only the files of the chain are read: `H100 SXM` is in `H100-SXM.toml`."""
    return read(os.path.join(_FOLDER, f"{name.replace(' ', '-')}.toml"), f"profile {name}")


def _theirs(folders: Sequence[Folder]) -> dict[str, Profile]:
    """The profiles that packages bring, by name."""
    found: dict[str, Profile] = {}
    sources = dict.fromkeys(_built_in(), "Primus itself")
    for folder in dict.fromkeys(folders):
        for path in data_folders.files(folder, "profiles", (".toml",)):
            profile = read(path)
            if profile.name in sources:
                raise ConfigError(
                    f"two profiles are called '{profile.name}'",
                    where=path,
                    why=f"one is of {sources[profile.name]}, one of {folder.source}",
                    fix="uninstall one, or rename it; to change a profile for one run, use --profile FILE",
                )
            sources[profile.name] = folder.source
            found[profile.name] = profile._replace(origin=f"profile {profile.name} ({folder.source})")
    return found


def _situation(facts: Facts, chain: Sequence[Profile], framework: str, environ: Mapping[str, str]) -> _Situation:
    return _Situation(
        architecture=_architectures(facts, chain),
        nic=frozenset(port.driver for port in facts.network.ports if port.active and port.driver),
        framework=frozenset({framework} - {""}),
        rocm=facts.rocm,
        cuda=facts.cuda,
        deterministic=environ.get("PRIMUS_DETERMINISTIC", "").strip() == "1",
        without=environ,
    )


def _architectures(facts: Facts, chain: Sequence[Profile]) -> frozenset[str]:
    """Of the model that the user set, if one is set: they may be planning for another machine's GPU."""
    model = facts.gpu_model if facts.environ.get(GPU_MODEL, "").strip() else ""
    if model and any(model == profile.name for profile in chain):
        from primus_machine.gpus import models

        if known := models.by_name(model):
            return frozenset({known.architecture})
    return frozenset(gpu.architecture for gpu in facts.gpus if gpu.architecture)


def _holds(when: Mapping[str, Any], situation: _Situation) -> bool:
    return all(_fits(key, listed(wanted), getattr(situation, key)) for key, wanted in when.items())


def _fits(key: str, wanted: Sequence[Any], here: Any) -> bool:
    if key == "deterministic":
        return here in wanted
    if key == "without":
        return any(name not in here for name in wanted)
    if key in VERSIONS:
        return bool(here) and any(_in_range(here, value) for value in wanted)
    return not here.isdisjoint(wanted)


def _in_range(version: str, wanted: str) -> bool:
    from packaging.specifiers import SpecifierSet  # only where a row asks for a version, and there is one

    try:
        return SpecifierSet(wanted).contains(version, prereleases=True)
    except ValueError:  # what a file of the machine says is no version
        return False


def _variable(row: _Row, profile: Profile) -> Variable:
    secret = is_secret_name(row.name)
    return Variable(row.name, row.value, profile.origin, row.why, secret=secret, source=row.source)
