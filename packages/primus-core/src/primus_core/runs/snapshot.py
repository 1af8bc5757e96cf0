"""Writes what it takes to run a run again, before its first rank starts. `saved` reads it, `replay` runs it.

plan.json  env/  config/  code/      what was decided, on what, with which settings and code
snapshot.json                        written last: every file with its checksum; without it, the rest is incomplete
nodes/<n>/                           the same of the nodes that joined the run
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence

from primus_core.plan.plan import PLAN, Plan
from primus_core.runs.snapshot_form import MANIFEST, SCHEMA, dump, plugin_copies, script_copies
from primus_machine import packages as metadata
from primus_machine import system_info
from primus_machine.code import repository
from primus_machine.facts import Facts
from primus_machine.files import plain_json
from primus_machine.files.atomic import PRIVATE, PRIVATE_FOLDER, write_atomically
from primus_machine.secrets.names import SECRET
from primus_machine.secrets.redaction import is_secret_name, looks_secret, redact, redact_text

__all__ = ["environment", "part_of", "write", "write_code"]


def part_of(plan: Plan) -> str:
    """Where in the run directory this node keeps what is its own: at the top, or below `nodes/<n>/`."""
    return f"nodes/{plan.distributed.node_rank}/" if plan.place.joined and plan.distributed.node_rank else ""


def write(plan: Plan, facts: Facts, environ: Mapping[str, str], secrets: Sequence[str]) -> str:
    """Write the snapshot of `plan`, whose ranks get `environ`. What could not be recorded, or nothing.

    Raises:
        OSError: the run directory cannot be written.
    """
    directory, part = plan.place.directory, part_of(plan)
    manifest = f"{directory}/{part}{MANIFEST}"
    if os.path.exists(manifest):  # hooks changed the plan: until it is whole again, it is incomplete
        os.unlink(manifest)
    code = _known_code(directory, secrets) if plan.place.outer else None
    code = code or _code(plan, facts, secrets)
    texts = {
        f"{part}{PLAN}": json.dumps(plan.to_dict(), indent=1),
        **{f"{part}{path}": text for path, text in environment(plan, facts, environ).items()},
        **{
            f"{part}{path}": redact_text(_text_of(step.script), secrets)
            for path, step in script_copies(plan.steps).items()
        },
        **{
            f"{part}{path}": redact_text(_text_of(plugin.target), secrets)
            for path, plugin in plugin_copies(plan.hook_plugins).items()
        },
        f"{part}code/code.json": json.dumps(code.summary, indent=1),
        **{file.path: file.text for file in plan.files},
    }
    masked = {path: redact(text, secrets) for path, text in texts.items()}
    masked[f"{part}code/diff.patch"] = code.patch  # without secrets already, and long
    checksums = {path: _write(f"{directory}/{path}", text) for path, text in masked.items()}
    own = {path.removeprefix(part): found for path, found in checksums.items() if path.startswith(part)}
    write_atomically(manifest, json.dumps({"schema": SCHEMA, "files": own}, indent=1))
    error = str(code.summary.get("error", ""))
    but = "; its commit is" if code.summary.get("commit") else ""
    return f"the code of the run is not recorded: {error}{but}" if error else ""


def write_code(plan: Plan, facts: Facts, secrets: Sequence[str]) -> None:
    """Write down the code for the layers inside, where the repository or git may be missing."""
    code = _code(plan, facts, secrets)
    _write(f"{plan.place.directory}/code/code.json", redact(json.dumps(code.summary, indent=1), secrets))
    _write(f"{plan.place.directory}/code/diff.patch", code.patch)


def _code(plan: Plan, facts: Facts, secrets: Sequence[str]) -> repository.Code:
    directory = plan.place.directory
    leave_out = (os.path.dirname(directory), directory)
    return repository.read(facts.cwd, facts.host.environ, leave_out=leave_out, secrets=secrets)


def _known_code(directory: str, secrets: Sequence[str]) -> repository.Code | None:
    """What the outermost layer wrote down, without the secrets that this one has."""
    try:
        summary, patch = _text_of(f"{directory}/code/code.json"), _text_of(f"{directory}/code/diff.patch")
        return repository.Code(plain_json.loads(summary), redact(patch, secrets))
    except (OSError, ValueError):
        return None


def _write(path: str, text: str) -> dict[str, object]:
    """For its owner alone: it holds the environment, or code. Not flushed to disk one by one: if the machine loses
    power, the checksum tells.
    """
    os.makedirs(os.path.dirname(path), mode=PRIVATE_FOLDER, exist_ok=True)
    write_atomically(path, text, durable=False, mode=PRIVATE)
    data = text.encode("utf-8", "surrogateescape")
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def environment(plan: Plan, facts: Facts, environ: Mapping[str, str]) -> dict[str, str]:
    """The texts below `env/`: what the run gets and on what it runs."""
    hidden = {v.name for v in plan.environment if v.secret}
    shown = {
        name: SECRET if name in hidden or is_secret_name(name) or looks_secret(value) else value
        for name, value in environ.items()
    }
    packages = sorted(f"{name}=={version}" for name, version in metadata.packages().items())
    return {
        "env/primus_env_dump.txt": dump(shown),
        "env/gpu_model.txt": f"{plan.gpu_model or 'none'}\n",
        "env/rocm_version.txt": f"{facts.rocm or 'none'}\n",
        "env/system_info.json": json.dumps(system_info.describe(facts), indent=1),
        "env/packages.txt": "".join(f"{line}\n" for line in packages),
    }


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()
