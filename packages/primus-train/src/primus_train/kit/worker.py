"""What every worker of a backend begins with: where its run is, which rank it is, and what it shall do."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from primus_core import variables
from primus_core.errors import RequestError
from primus_core.plan.plan import PLAN
from primus_machine.files import trust
from primus_machine.files.atomic import regular
from primus_machine.secrets.redaction import is_secret_name
from primus_machine.variables import RUN_DIR

__all__ = [
    "continues_from",
    "metrics_file",
    "rank",
    "require_trusted",
    "resolved",
    "run_directory",
    "variable",
    "world_size",
]

_REFERENCE = re.compile(r"\$\{(\w+)\}")


def run_directory() -> Path:
    """The run's."""
    return Path(os.environ[RUN_DIR])


def metrics_file() -> str:
    """Where step metrics go; empty: nowhere."""
    return os.environ.get(variables.METRICS_FILE, "")


def rank() -> int:
    """This process's, among all of the run; 0 where it is alone."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """So many ranks has the run."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def variable(name: str) -> str:
    """What an environment variable of this process says; empty: it is not set."""
    return os.environ.get(name, "")


def resolved() -> dict[str, Any]:
    """What the backend planned (`BackendPlan.config`), with `${SECRET}` filled in: plan and files hold references."""
    path = run_directory() / "config" / "backend_config.json"
    with open(path, encoding="utf-8", opener=_of_run) as file:
        found: dict[str, Any] = _filled(json.loads(file.read()))
    return found


def continues_from(checkpoint: str) -> bool:
    """Whether `checkpoint` is of the earlier run that this one continues."""
    with open(run_directory() / PLAN, encoding="utf-8", opener=_of_run) as file:
        earlier = json.loads(file.read()).get("continues")
    return bool(earlier) and checkpoint.startswith(f"{earlier}/")


def _of_run(path: str, flags: int) -> int:
    """Open a file of the run: the person's own, also where a file system shows them as somebody else.

    Raises:
        RequestError: it is another's, in the place of the run's.
    """
    try:
        return trust.of(os.environ).opener(path, flags)
    except RequestError:
        descriptor = regular(path, flags)
        found = os.fstat(descriptor)
        if found.st_uid == _shown_as(os.path.dirname(path)) and not trust.writers(found, descriptor):
            return descriptor
        os.close(descriptor)
        raise


def _shown_as(folder: str) -> int:
    """To whom a file belongs that this process makes there; -1: it can make none."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_uid
    except OSError:
        return -1


def require_trusted(*paths: str) -> None:
    """Refuse to load a checkpoint that was not there when the run was planned, and is not trusted.

    Raises:
        RequestError: it is not.
    """
    for path in paths:
        trust.of(os.environ).require_loadable(path)


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item) for item in value]
    if isinstance(value, str) and "${" in value:
        return _REFERENCE.sub(lambda m: os.environ[m[1]] if is_secret_name(m[1]) else m[0], value)
    return value
