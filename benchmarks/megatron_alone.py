"""Megatron's own loop with the settings that Primus resolved: no worker and no metrics of ours.

BENCHMARK_RUN=... torchrun --nproc-per-node 1 benchmarks/megatron_alone.py
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path


def main(run: Path) -> None:
    """What CPUs need to run Megatron at all and the functions that a script around it must bring, then its loop."""
    from primus_megatron import patches
    from primus_megatron.loop import pretrain
    from primus_megatron.model import model_provider
    from primus_train.kit import versions

    patches.apply_all()
    settings = json.loads((run / "config/backend_config.json").read_text(encoding="utf-8"))["settings"]
    pretrain(versions.release(version("megatron-core"))[:2], settings, model_provider)


if __name__ == "__main__":
    main(Path(os.environ["BENCHMARK_RUN"]))
