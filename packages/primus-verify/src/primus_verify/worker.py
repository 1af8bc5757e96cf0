"""The worker of `verify`: trains the reference and each layout, and compares them.

It runs in a run directory that the task `verify` planned: python -m primus_verify.worker
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from primus_core.config.system import load
from primus_core.environment.resolve import cache
from primus_core.errors import MachineError, PrimusError, RequestError, TrainingError
from primus_core.hooks.folders import hook_folders
from primus_core.variables import PARENT
from primus_machine import facts as machine
from primus_machine import variables
from primus_machine.host import HostRoot
from primus_machine.units import counted
from primus_verify import report
from primus_verify.against import Side, compare_sides
from primus_verify.fingerprint import fingerprint
from primus_verify.kept import Kept
from primus_verify.layouts import Layout, parse
from primus_verify.page import as_page
from primus_verify.resolving import find_verifier
from primus_verify.session import Result, Session
from primus_verify.task import AGAINST_MODEL, ANYWAY, EXPERIMENT, REQUEST
from primus_verify.trials import Trials
from primus_verify.warm import OF_TORCHRUN, WarmPython
from primus_verify.warm_client import RANK, TORCHRUN

__all__ = ["main"]

_PRIMUS = ("primus_core", "primus_machine", "primus_train", "primus_verify")
"""What all trials run, beside the backend."""


def main() -> int:
    """Verify; the exit code.

    Raises:
        PrimusError: the reference cannot be trained, no layout can be tried, or one differs or fails.
    """
    environ = HostRoot().environ
    run = environ.get(variables.RUN_DIR, "")
    try:
        with open(f"{run}/{REQUEST}", encoding="utf-8") as file:
            request = json.load(file)
    except OSError as error:
        raise MachineError(f"{REQUEST} cannot be read", why=error.strerror or "",
                           fix="start it as `primus direct -- verify --config FILE`") from None  # fmt: skip
    folder = os.path.join(run, "trials")
    os.makedirs(folder, exist_ok=True)
    with _imported(request) as warm:
        layouts, found = _verify(request, run, folder, environ, warm)
    text = json.dumps(found, indent=1)
    print(text if request["json"] else report.as_text(found), flush=True)  # first: a file may fail now
    report.write(text, f"{run}/verify.json")
    report.write(as_page(found), f"{run}/verify.html")
    if request["output"]:
        report.write(text, request["output"])
    _refuse(layouts, run, f"; {ANYWAY}" if request["before_training"] else "")
    if not layouts and found["verdict"] == "not tried":
        raise TrainingError("no setting could be tried", why="each training failed", fix=f"read the logs in {folder}")
    return 0


def _imported(request: Mapping[str, Any]) -> AbstractContextManager[WarmPython | None]:
    """What imports for all trainings. On GPUs, each does so: a package may open devices when it is imported."""
    if request["device"] != "cpu":
        return nullcontext()
    return WarmPython({TORCHRUN: OF_TORCHRUN, RANK: find_verifier(request["framework"]).imports})


def _verify(
    request: Mapping[str, Any], run: str, folder: str, environ: Mapping[str, str], warm: WarmPython | None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return what came of each layout, and the result as `verify.json` has it."""
    verifier = find_verifier(request["framework"])
    trials = Trials(verifier, folder, f"{run}/{EXPERIMENT}", environ, request["steps"], request["timeout_s"],
                    batch=request["batch"], warm=warm)  # fmt: skip
    console = sys.stderr if request["json"] else sys.stdout
    kept = Kept(os.path.join(cache(environ), "verify", _key(request, run, environ)), environ)
    if request["again"]:
        kept.forget(request["layouts"])
    session = Session(trials, kept, request["rtol"], lambda text: print(text, file=console, flush=True),
                      request["not_tried"])  # fmt: skip
    layouts = session.verify([parse(text, verifier.rank_axes) for text in request["layouts"]])
    for name, ranks, why in request["left_out"]:
        session.say(f"{name}: not tried: {why}")
        layouts.append(Result(Layout(name, {}, ranks), "not tried", why=why).to_dict())
    if request["against"]:
        layouts.append(_against(request, run, folder, environ, session.say, request["rtol"]))
    found = report.document(request, layouts, session.try_settings(request["settings"]))
    session.clean()
    return layouts, found


def _against(
    request: Mapping[str, Any], run: str, folder: str, environ: Mapping[str, str], say: Callable[[str], None],
    rtol: float | None,
) -> dict[str, Any]:  # fmt: skip
    """What came of the other framework."""
    limit_s = request["timeout_s"]
    first = Side(request["framework"], sys.executable, f"{run}/{AGAINST_MODEL}", folder, environ, say, limit_s)
    return compare_sides(first, replace(first, **request["against"]), rtol).to_dict()


def _key(request: Mapping[str, Any], run: str, environ: Mapping[str, str]) -> str:
    """What results are kept by."""
    with open(f"{run}/{EXPERIMENT}", encoding="utf-8") as file:
        experiment = file.read().replace(run, "")
    asked = json.dumps([request[name] for name in ("framework_version", "steps", "rtol", "device", "batch")])
    packages = (*request["packages"], *_PRIMUS)
    return fingerprint(packages, environ, experiment, asked, own=_own_files(), runs=(run, environ.get(PARENT, "")))


def _own_files() -> list[str]:
    """Return the person's files that each trial reads beside the experiment: hooks, patches, plugins, `primus.yaml`."""
    host = HostRoot()
    system = load(host)
    layers = [layer.path for layer in system.layers if layer.document]
    folders = hook_folders(machine.read(host), system, "", ())
    return [*layers, *system.plugin_files, *system.patches, *filter(None, [system.profile]), *folders]


def _refuse(layouts: Sequence[Mapping[str, Any]], run: str, anyway: str) -> None:
    """Raise an error unless every layout that was tried is equal. `anyway`: what to do beside reading the result."""
    wrong = [one for one in layouts if one["status"] in ("differs", "failed")]
    if wrong:
        reason = wrong[0]["findings"][0]["text"] if wrong[0]["findings"] else wrong[0]["why"]
        seen = f"; {wrong[0]['why']}" if wrong[0]["findings"] and wrong[0]["why"] else ""
        why = f"{wrong[0]['layout']} {wrong[0]['status']}: {reason}{seen}"
        what = f"{len(wrong)} of {counted(len(layouts), 'layout')} cannot be trusted"
        raise PrimusError(what, why=why, fix=f"read {run}/verify.html or verify.json{anyway}")
    if layouts and not any(one["status"] == "equal" for one in layouts):
        raise RequestError("nothing was compared", why="no layout could be tried", fix=f"see the reasons above{anyway}")


if __name__ == "__main__":
    sys.exit(main())
