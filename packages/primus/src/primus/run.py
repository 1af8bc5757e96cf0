"""Run a Python file on every rank, as torchrun would.

primus direct -- run train.py --lr 3e-4
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from primus_core.environment.resolve import of_python
from primus_core.errors import RequestError, nearest
from primus_core.plan.plan import Requirement, Worker
from primus_core.plugins.contracts import Scope, TaskCall, TaskPlan
from primus_core.request.arguments import Parser

__all__ = ["RUN"]

_EXPERIMENTS = (".yaml", ".yml", ".toml")


class Run:
    """Task `run`."""

    name = "run"
    scope: Scope = "rank"
    epilog = """examples:
  primus direct -- run train.py --lr 3e-4
  primus direct --single -- run prepare.py
  primus slurm srun -N 2 -- run train.py --config my.json

Everything after FILE is passed to the file unchanged."""

    def add_arguments(self, parser: Parser) -> None:
        """`run FILE [words]`."""
        parser.usage = f"{parser.prog} FILE [arguments of FILE]"
        parser.add_argument("file", metavar="FILE", help="a Python file, which each rank runs as its main program")
        parser.rest_to("words", checked=False, split=lambda _, words: _split(words))

    def plan(self, call: TaskCall) -> TaskPlan:
        """The file in a worker, on every rank."""
        path = os.path.join(call.facts.cwd, call.file(call.args.file))
        if path.endswith(_EXPERIMENTS):
            fix = f"-- train pretrain --config {call.args.file}"
            raise RequestError(f"'{call.args.file}' is not a Python file", why="`run` runs a Python file", fix=fix)
        if not call.elsewhere and not os.path.isfile(path):
            task = nearest(call.args.file, call.catalogue.names("tasks"))
            near = _beside(path, call.args.file)
            fix = f"did you mean the task '{task}'?" if task else "check the path: it is relative to the current folder"
            fix = f"did you mean '{near}'?" if near else fix
            what, meant = f"there is no file '{call.args.file}'", shlex.quote(near) if near else None
            raise RequestError(what, why=f"looked for {path}", fix=fix, options=[call.args.file], meant=meant)
        name = re.sub(r"[^\w.+-]+", "_", os.path.splitext(os.path.basename(path))[0], flags=re.ASCII)
        return TaskPlan(
            place=call.place("output", name.lstrip("_.+-") or self.name),
            worker=Worker("primus.run_worker", (path, *call.args.words), "torchrun"),
            requires=(Requirement("file", path, "put the file back, or name another"),),
            folder=os.path.dirname(path),
            reads=(path,),
            loads=(path,),
            notes=_modules_beside(path, call),
        )


def _split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The file, and its words.

    Raises:
        RequestError: an option stands in front of the file.
    """
    if words and words[0].startswith("-") and words[0] not in ("-h", "--help"):
        file = next((word for word in words if word.endswith(".py")), "FILE")
        raise RequestError(
            f"run: '{words[0]}' is before the file",
            why="`run` takes a Python file, not a module, and behind it the file's own options",
            fix=f"primus direct -- run {file}; GPUS_PER_NODE=N sets the number of ranks per node",
        )
    return words[:1], words[1:]


def _modules_beside(path: str, call: TaskCall) -> tuple[str, ...]:
    """What a person must know whose own modules lie beside the file, where others can put some, too."""
    folder = os.path.dirname(path)
    if call.elsewhere or os.path.samefile(folder, call.facts.cwd):  # of that folder, all runs say it
        return ()
    found = of_python(folder, call.facts.host.environ)
    return tuple(v.why for v in found) if any(name.endswith(".py") for name in call.facts.host.names(folder)) else ()


def _beside(path: str, named: str) -> str:
    """Return the Python file in that folder whose name is nearest to it; empty: there is none."""
    folder, name = os.path.split(path)
    names = os.listdir(folder) if os.path.isdir(folder) else []
    near = nearest(name, [one for one in names if one.endswith(".py")])
    return os.path.join(os.path.dirname(named), near) if near else ""


RUN = Run()
