"""What a machine asks of a run's environment: its GPU's profile, and its network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from primus_core.environment import gpu_model, profiles
from primus_core.environment.profile_files import Profile
from primus_core.plan.plan import Distributed, Variable
from primus_machine import collectives
from primus_machine.facts import Facts

__all__ = ["Defaults", "of_machine"]


class Defaults(NamedTuple):
    """Variables, weakest first, and what a person should know of this machine."""

    variables: tuple[Variable, ...]
    notes: tuple[str, ...]
    chain: tuple[Profile, ...]
    """The profiles, base first."""


def of_machine(
    facts: Facts, place: Distributed, *, framework: str, profile_file: str, environ: Mapping[str, str]
) -> Defaults:
    """What the machine of `facts` asks for.

    `environ`: what the run has above that, so that conditions see what it will really have: the backend's and the
    experiment's variables, the person's over them, `--env` on top.

    Raises:
        ConfigError: a profile is wrong, unknown, or there twice.
        RequestError: the person names a GPU model that nobody knows.
    """
    gpu_model.check(facts.environ, lambda: profiles.names(profiles.installed()))
    folders = profiles.installed() if facts.gpus or profile_file else ()
    chain, _ = profiles.select(facts, folders, profile_file)
    own, notes = profiles.variables(
        facts, framework=framework, profile_file=profile_file, folders=folders, environ=environ
    )
    detected = of_network(facts, place, environ)
    relevant = tuple(note for note in facts.notes if not profiles.outdated(note, chain))
    return Defaults((*own, *detected.variables), (*relevant, *notes, *detected.notes), chain)


class Detected(NamedTuple):
    """What its network asks for."""

    variables: tuple[Variable, ...]
    notes: tuple[str, ...]


def of_network(facts: Facts, place: Distributed, environ: Mapping[str, str]) -> Detected:
    """Its network alone."""
    found, notes = collectives.choose(
        facts, has_gpus=bool(facts.gpus), nnodes=place.nnodes, master_address=place.master_addr, user_environ=environ
    )
    return Detected(tuple(Variable(one.name, one.value, "network", one.why, source=one.source) for one in found), notes)
