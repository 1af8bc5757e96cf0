"""Which Megatron will run: a checkout that the person names, or the one that can be imported. Nothing is imported."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec

from primus_core.errors import MachineError
from primus_train.backend import BackendCall

__all__ = ["SETTING", "Installation", "importable_version", "installation", "version_below"]

SETTING, _VARIABLE = "backend_path", "BACKEND_PATH"
_INFO = "megatron/core/package_info.py"
_PART = re.compile(r"^(MAJOR|MINOR|PATCH|PRE_RELEASE) = ['\"]?(\w*)", re.M)


@dataclass(frozen=True, slots=True)
class Installation:
    """Megatron, and what it finds beside it, where the plan will be carried out."""

    version: str
    """Empty: there is none, or that is not known."""
    checkout: str = ""
    """The folder of a checkout; empty: the installed one."""
    known: bool = True
    """Whether the plan is for this machine and its packages. What another has, or a container, nobody can ask."""

    @property
    def code(self) -> str:
        """A file of the checkout, which stands for all of them."""
        return os.path.join(self.checkout, _INFO)

    def has(self, module: str) -> bool:
        """Whether a module is there, as far as is known."""
        return not self.known or find_spec(module) is not None


def installation(call: BackendCall) -> Installation:
    """What the experiment, the environment and this Python say.

    Raises:
        MachineError: the folder that they name holds no Megatron.
    """
    here = call.facts.host.is_here and not call.elsewhere
    name, given = SETTING, call.document.data.get(SETTING)
    if not given:
        name, given = _VARIABLE, call.facts.environ.get(_VARIABLE)
    if not given or not isinstance(given, str):
        return Installation(importable_version(), known=here)
    folder = os.path.join(call.facts.cwd, given)
    version = version_below(folder)
    if here and not version:
        raise MachineError(
            f"{name} '{given}' contains no Megatron",
            why=f"there is no {os.path.join(folder, _INFO)}",
            fix=f"name the root of a Megatron-LM checkout, or remove {name}",
        )
    return Installation(version or importable_version(), folder, here)


def version_below(folder: str) -> str:
    """The version of the Megatron in a folder; empty where there is none."""
    try:
        with open(os.path.join(folder, _INFO), encoding="utf-8") as file:
            parts = dict(_PART.findall(file.read()))
        return f"{parts['MAJOR']}.{parts['MINOR']}.{parts['PATCH']}{parts['PRE_RELEASE']}"
    except (OSError, UnicodeDecodeError, KeyError):
        return ""


def importable_version() -> str:
    """The version that `import megatron.core` would bring; empty where there is none."""
    found = find_spec("megatron")
    places = map(os.path.dirname, (found and found.submodule_search_locations) or ())
    return next(filter(None, map(version_below, places)), "")
