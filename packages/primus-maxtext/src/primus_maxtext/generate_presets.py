"""Writes AMD's presets for MaxText as data, from a checkout of AMD's Primus, so that experiments mean the same.

python -m primus_maxtext.generate_presets FILE CHECKOUT COMMIT
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus_maxtext.schema import load, shipped
from primus_maxtext.settings import WITHOUT_EFFECT
from primus_train.kit import presets

__all__ = ["reduced"]

_NOT_KEPT = {*WITHOUT_EFFECT, "base_config"}


def reduced(kind: str, preset: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of MaxText in a preset: its values win over those of the named model, defaults or not."""
    del kind
    options = load(list(shipped().values())[-1]).options
    return {name: value for name, value in preset.items() if name in options and name not in _NOT_KEPT}


def main() -> None:
    """Write the file that the command line names."""
    file, checkout, commit = sys.argv[1:]
    presets.write(Path(file), Path(checkout), commit, "maxtext", reduced)


if __name__ == "__main__":
    main()
