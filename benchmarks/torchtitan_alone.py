"""TorchTitan's own entry point with the quickstart's configuration: no worker and no metrics of ours.

It is both the program that torchrun starts and the registry module that `--module` names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def quickstart() -> Any:
    """The configuration that Primus resolved, with TorchTitan's own metrics."""
    from torchtitan.components.metrics import MetricsProcessor

    from primus_torchtitan.trainer_config import build

    resolved = json.loads((Path(os.environ["BENCHMARK_RUN"]) / "config/backend_config.json").read_text())
    config = build(resolved)
    config.metrics = MetricsProcessor.Config(log_freq=1, disable_color_printing=True)
    return config


def main() -> None:
    """What CPUs need to run TorchTitan at all, then `torchtitan.train.main` as it is."""
    from primus_torchtitan import patches

    patches.apply_all()
    from torchtitan.train import main as train

    train()


if __name__ == "__main__":
    main()
