"""What TorchTitan 0.3 renamed and removed, by the table of `earlier_names`."""

from __future__ import annotations

from primus_torchtitan.earlier_names import fate
from primus_torchtitan.own_settings import SETTINGS
from primus_torchtitan.schema import load, shipped
from primus_train.migration import Migration, find_version

__all__ = ["to_version"]

_FRAMEWORK = "torchtitan"


def to_version(asked: str) -> Migration:
    """Return the way to a version of TorchTitan.

    Raises:
        RequestError: there is no such version.
    """
    files = shipped()
    earlier = {version: load(path).options.keys() for version, path in files.items()}
    version = find_version(_FRAMEWORK, asked, files)
    return Migration(_FRAMEWORK, version, {*earlier[version], *(row.name for row in SETTINGS)}, fate, earlier)
