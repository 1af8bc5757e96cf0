"""What the tests of the TorchTitan backend share: a resolved experiment from a few lines of YAML."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from primus_core import facts
from primus_core.backend import BackendCall, BackendPlan
from primus_core.config import files
from primus_core.facts import Gpu
from primus_core.plan import Distributed, RunPlace
from primus_torchtitan.backend import TORCHTITAN

Resolve = Callable[..., BackendPlan]

MODEL = """
model: {family: llama3, dim: 64, n_layers: 4, n_heads: 4, n_kv_heads: 2}
data: {text: python-stdlib, vocab_size: 512}
training: {steps: 4, seq_len: 64, local_batch_size: 2}
"""


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    """`resolve(text, ranks=1, gpus=0, ...)`: what the backend plans for settings written as YAML (or TOML)."""

    def plan(
        text: str = MODEL,
        *,
        ranks: int = 1,
        gpus: int = 0,
        suffix: str = ".yaml",
        environ: dict[str, str] | None = None,
        previous: Callable[[str], tuple[str, ...]] = lambda _: (),
        run: Path | None = None,
    ) -> BackendPlan:
        path = tmp_path / f"settings{suffix}"
        path.write_text(textwrap.dedent(text))
        document = files.read(str(path), {})
        here = facts.read()._replace(
            environ={"HOME": str(tmp_path), **(environ or {})},
            cwd=str(tmp_path),
            cpu_count=8,
            gpus=tuple(Gpu("amd", f"0000:0{i}:00.0") for i in range(gpus)),
        )
        return TORCHTITAN.resolve(
            BackendCall(
                stage="pretrain",
                config=document.data,
                document=document,
                facts=here,
                distributed=Distributed(gpus_per_node=ranks),
                place=RunPlace("run", str(run or tmp_path / "run"), ""),
                previous=previous,
            )
        )

    return plan
