"""What `pip install .` installs in a checkout: the packages below `packages/`. A backend is an extra, by its name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Checkout(MetadataHookInterface):
    """Lists the packages where they lie."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in what pyproject.toml calls dynamic."""
        extras = dict(self.config["extras"])
        metadata["dependencies"] = []
        for file in sorted(Path(self.root).glob("packages/*/pyproject.toml")):
            project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
            # pip takes `primus-bench` at the end of a path for a name with a version, and keeps the wheel for good:
            # after `git pull`, it would install the old one.
            place = f"{project['name']} @ {file.parent.as_uri()}/."
            backends = project.get("entry-points", {}).get("primus.backends", ())
            extras |= {name: [place] for name in backends}
            metadata["dependencies"] += [] if backends else [place]
        metadata["optional-dependencies"] = extras
