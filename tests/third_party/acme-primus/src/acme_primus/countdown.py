"""A backend that counts the loss down, on the terms that Primus gives to every backend."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus_core import variables
from primus_core.config.document import Document
from primus_core.journal import metrics
from primus_core.plan.plan import Worker
from primus_train.backend import BackendCall, BackendPlan
from primus_train.kit import options

OPTIONS = {
    "steps": options.Option("steps", "int", 3),
    "loss.start": options.Option("loss.start", "float", 9.0),
    "loss.kind": options.Option("loss.kind", "str", "linear", choices=("linear", "steep")),
}


class Countdown:
    """Backend `countdown`."""

    name = "countdown"
    stages = ("pretrain",)

    def presets(self) -> str:
        """The package has none."""
        return str(Path(__file__).with_name("presets"))

    def adopt(self, document: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """No file form of its own."""
        return None

    def resolve(self, call: BackendCall) -> BackendPlan:
        """Check the settings; plan one process per rank."""
        own = {key: value for key, value in call.document.data.items() if key not in ("model", "data")}
        flat = options.check(Document(own, call.document.marks), OPTIONS, framework="countdown")
        settings = {name: flat.get(name, option.default) for name, option in OPTIONS.items()}
        path = f"{call.place.directory}/config/backend_config.json"
        return BackendPlan(worker=Worker("acme_primus.countdown", (path,)), config=settings)


COUNTDOWN = Countdown()


def main(path: str) -> None:
    """The worker: loss falls from its start to nothing."""
    settings = json.loads(Path(path).read_text(encoding="utf-8"))
    for step in range(1, settings["steps"] + 1):
        loss = settings["loss.start"] * (1 - step / settings["steps"])
        row = metrics.Metrics(step=step, steps=settings["steps"], loss=loss, tokens_per_second=10.0)
        print(metrics.log_line(row))
        if os.environ["RANK"] == "0":
            metrics.append(os.environ[variables.METRICS_FILE], row)


if __name__ == "__main__":
    main(sys.argv[1])
