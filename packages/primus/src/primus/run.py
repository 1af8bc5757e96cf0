"""Run a Python file or module on every rank, as torchrun would.

primus direct -- run train.py --lr 3e-4
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from itertools import pairwise

from primus_core.environment.resolve import of_python
from primus_core.errors import RequestError, nearest
from primus_core.plan.plan import Requirement, RunPlace, Worker
from primus_core.plugins.contracts import Scope, TaskCall, TaskPlan
from primus_core.request import former
from primus_core.request.arguments import Parser
from primus_machine.files.nearby import nearest_beside
from primus_machine.text import Note

__all__ = ["RUN"]

_OURS = {
    "--dry-run": "for a dry run: primus --dry-run ...",
    "--replay": "to replay a run: primus replay RUN",
    "--hang-timeout": "to end ranks that hang: primus direct --hang-timeout {} -- run ...",
    "--max-restarts": "to restart failed ranks: primus direct --max-restarts {} -- run ...",
    "--grace-period": "for more time to end: primus direct --grace-period {} -- run ...",
    "--single": "to start one process instead of ranks: primus direct --single -- run ...",
    "--numa": "to bind ranks to CPUs: primus direct --numa -- run ...",
}
"""What to type instead of words of Primus that a program gets: `{}` is their value."""
_EXPERIMENTS, _SHELL = (".yaml", ".yml", ".toml"), (".sh", ".bash", ".sbatch", ".slurm")


class Run:
    """Task `run`."""

    name = "run"
    scope: Scope = "rank"
    epilog = """examples:
  primus direct -- run train.py --lr 3e-4
  primus direct -- run -m my_package.train --lr 3e-4
  primus direct --single -- run prepare.py
  primus slurm srun -N 2 -- run train.py --config my.json

Everything after FILE or MODULE is passed to it unchanged."""

    def add_arguments(self, parser: Parser) -> None:
        """`run FILE [words]`, `run -m MODULE [words]`."""
        parser.usage = f"{parser.prog} FILE [arguments of FILE]\n       {parser.prog} -m MODULE [arguments of MODULE]"
        parser.add_argument("-m", "--module", action="store_true", help="name a module instead, as with `python -m`")
        parser.add_argument("file", metavar="FILE", help="a Python file, which each rank runs as its main program")
        parser.rest_to("words", checked=False, split=lambda _, words: _split(words))

    def plan(self, call: TaskCall) -> TaskPlan:
        """The file or module in a worker, on every rank."""
        return _run_module(call, call.args.file) if call.args.module else self._run_file(call)

    def _run_file(self, call: TaskCall) -> TaskPlan:
        path = os.path.join(call.facts.cwd, call.file(call.args.file))
        if path.endswith(_EXPERIMENTS):
            fix = f"-- train pretrain --config {call.args.file}"
            what = f"'{call.args.file}' is not a Python file"
            raise RequestError(what, why="`run` runs a Python file", fix=fix, kind="unfit")
        if call.args.file in ("bash", "sh", *former.word_set("launchers")) or path.endswith(_SHELL):
            what, fix = f"'{call.args.file}' is not a Python file", "name the Python file that it starts"
            raise RequestError(what, why="`run` starts a Python file on every rank", fix=fix, kind="unfit")
        if not call.elsewhere and not os.path.isfile(path):
            if os.path.sep not in call.args.file and _find_module(call.args.file, call, call.facts.cwd):
                what = f"there is no file '{call.args.file}', but a module"
                raise RequestError(
                    what, fix="name it behind -m", options=[call.args.file], meant=f"-m {call.args.file}"
                )
            if any(word.endswith(".py") for word in call.args.words[:1]):
                what, fix = f"'{call.args.file}' is not a Python file", "remove it: each rank runs the file"
                raise RequestError(what, fix=fix, options=[call.args.file], meant="")
            task = nearest(call.args.file, call.catalogue.names("tasks"))
            near = nearest_beside(path, call.args.file, ".py")
            fix = f"did you mean the task '{task}'?" if task else "check the path: it is relative to the current folder"
            fix = f"did you mean '{near}'?" if near else fix
            what, meant = f"there is no file '{call.args.file}'", shlex.quote(near) if near else None
            why, named = f"looked for {path}", [call.args.file]
            raise RequestError(what, why=why, fix=fix, kind="file", options=named, meant=meant)
        notes = _notes(call.args.words, "file")
        if call.elsewhere and not os.path.isfile(path):
            near = nearest_beside(path, call.args.file, ".py")
            meant = f" (did you mean '{near}'?)" if near else ""
            notes.append(Note(f"there is no file '{path}' on this machine{meant}: the run needs it there", "words"))
        return TaskPlan(
            place=_place(call, os.path.splitext(os.path.basename(path))[0]),
            worker=Worker("primus.run_worker", (path, *call.args.words), "torchrun"),
            requires=(Requirement("file", path, "put the file back, or name another"),),
            folder=os.path.dirname(path),
            reads=(path,),
            loads=(path,),
            notes=(*_modules_beside(path, call), *notes),
        )


def _notes(words: Sequence[str], what: str) -> list[Note]:
    """Return a note on each of the options of Primus that stand behind the file or module."""
    found = []
    for word, after in pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        if flag in _OURS:
            value = value if equals else after if after[:1] not in ("", "-") else "VALUE"
            ours = _OURS[flag].format(shlex.quote(value))
            found.append(Note(f"{flag} behind the {what} is an argument of the {what}; {ours}", "words"))
    return found


def _place(call: TaskCall, name: str) -> RunPlace:
    name = re.sub(r"[^\w.+-]+", "_", name, flags=re.ASCII)
    return call.place("", name.lstrip("_.+-") or RUN.name)


def _run_module(call: TaskCall, module: str) -> TaskPlan:
    """The worker is the module itself: a rank runs it as `python -m` does, from the current folder."""
    untrusted = of_python(call.facts.cwd, call.facts.host.environ)
    files = () if call.elsewhere else _find_module(module, call, "" if untrusted else call.facts.cwd)
    if not (files or call.elsewhere):
        where = f"looked in {'' if untrusted else f'{call.facts.cwd}, '}PYTHONPATH and the installed packages"
        raise RequestError(
            f"there is no module '{module}' that Python can run",
            why="\n".join((where, *(variable.why for variable in untrusted))),
            fix="start from the folder that holds your package; a package itself needs a __main__.py",
            options=[module],
        )
    return TaskPlan(
        place=_place(call, module.rpartition(".")[2]),
        worker=Worker(module, tuple(call.args.words), "torchrun"),
        requires=tuple(Requirement("file", file, "put it back, or name another module") for file in files),
        folder=call.facts.cwd,
        loads=files,
        notes=tuple(_notes(call.args.words, "module")),
    )


def _find_module(module: str, call: TaskCall, folder: str) -> tuple[str, ...]:
    """Return the files that `python -m` loads, the packages around the module first; empty: there is no such module.

    Nothing is imported for that. `folder` is looked in before PYTHONPATH and the installed packages.
    """
    from importlib.machinery import PathFinder
    from importlib.util import find_spec

    first = filter(None, (folder, *call.facts.host.environ.get("PYTHONPATH", "").split(os.pathsep)))
    top, *below = module.split(".")
    spec, name, found = PathFinder.find_spec(top, [*first]) or (find_spec(top) if top else None), top, list[str]()
    while spec and (below or spec.submodule_search_locations is not None):
        found += [spec.origin] if spec.origin and spec.has_location else []
        name = f"{name}.{below.pop(0) if below else '__main__'}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations or ()))
    return (*found, spec.origin) if spec and spec.origin and spec.has_location else ()


def _split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The file or `-m MODULE`, and its words.

    Raises:
        RequestError: an option stands in front of the file.
    """
    if words and words[0] in ("-m", "--module"):
        return words[:2], words[2:]
    if words and words[0].startswith("-") and words[0] not in ("-h", "--help"):
        other = former.instead("run", words[0])
        raise RequestError(
            f"run: '{words[0]}' is before the file",
            why="the options of a file follow it; torchrun's are variables: GPUS_PER_NODE=N sets the ranks per node",
            fix=other or "primus direct -- run FILE [arguments of FILE]",
            kind="" if other else "order",
            options=words,
        )
    return words[:1], words[1:]


def _modules_beside(path: str, call: TaskCall) -> tuple[str, ...]:
    """What a person must know whose own modules lie beside the file, where others can put some, too."""
    folder = os.path.dirname(path)
    if call.elsewhere or os.path.samefile(folder, call.facts.cwd):  # of that folder, all runs say it
        return ()
    found = of_python(folder, call.facts.host.environ)
    return tuple(v.why for v in found) if any(name.endswith(".py") for name in call.facts.host.names(folder)) else ()


RUN = Run()
