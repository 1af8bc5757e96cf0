"""What the tests of the backends share: the plan of a few lines of settings, with their places, on a machine of one's choice."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

from primus_core.config import files
from primus_core.journal.metrics import OnNonFinite
from primus_core.plan.plan import Distributed, RunPlace
from primus_machine import facts
from primus_machine.facts import Gpu
from primus_train.backend import Backend, BackendCall, BackendPlan
from primus_train.continuation import Start, changes

Resolve = Callable[..., BackendPlan]


def changed(earlier: Path, plan: BackendPlan, here: Path) -> list[str]:
    """The names of the settings for which `plan`, whose directory is `here`, may not continue the run `earlier`."""
    return [one.name for one in changes(str(earlier), Start(plan.config, str(here), plan.changeable, plan.defaults))]


def not_loadable(earlier: Path, plan: BackendPlan, here: Path) -> list[str]:
    """Those of them with which the checkpoint cannot be loaded, so that `--continue` is refused, too."""
    start = Start(plan.config, str(here), plan.changeable, plan.defaults, fixed=plan.fixed)
    return [one.name for one in changes(str(earlier), start) if one.fixed]


def resolver(backend: Backend, folder: Path, default: str) -> Resolve:
    """`resolve(text, ranks=1, gpus=0, ...)`: what the backend plans for settings written as YAML (or TOML)."""

    def plan(
        text: str = "",
        *,
        ranks: int = 1,
        nnodes: int = 1,
        gpus: int = 0,
        suffix: str = ".yaml",
        environ: dict[str, str] | None = None,
        previous: Callable[[str], tuple[str, ...]] = lambda _: (),
        run: Path | None = None,
        on_non_finite: OnNonFinite = "stop",
        step: int | None = None,
        weights_only: bool = False,
    ) -> BackendPlan:
        path = folder / f"settings{suffix}"
        path.write_text(textwrap.dedent(text or default))
        document = files.read(str(path), {})
        here = facts.read()._replace(
            environ={"HOME": str(folder), **(environ or {})},
            cwd=str(folder),
            cpu_count=8,
            gpus=tuple(Gpu("amd", f"0000:0{i}:00.0") for i in range(gpus)),
        )
        return backend.resolve(
            BackendCall(
                stage="pretrain",
                config=document.data,
                document=document,
                facts=here,
                distributed=Distributed(nnodes=nnodes, gpus_per_node=ranks),
                place=RunPlace("run", str(run or folder / "run"), ""),
                previous=previous,
                on_non_finite=on_non_finite,
                step=step,
                weights_only=weights_only,
            )
        )

    return plan
