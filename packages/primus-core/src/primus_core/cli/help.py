"""`primus --help`: what is installed, from package metadata and source text. It imports no plugin and no argparse."""

import os

from primus_machine import packages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from primus_core.plugins.catalogue import Catalogue
    from primus_core.request.request import Request

__all__ = ["of_request", "overview"]

_HEAD = """\
Primus trains large models with one command: on this machine, in a container, or on a cluster.

usage: primus [--dry-run] [--debug] [--config FILE] <runtime> [runtime options] -- <task> [task options]
       primus <command> [options]
"""

_TAIL = """
examples:
  primus direct -- train pretrain --config examples/quickstart.yaml
  primus direct --dry-run -- train pretrain --config examples/quickstart.yaml training.steps=50
  primus direct -- bench gemm -M 4096 --dtype bf16
  primus env explain
  primus replay output/quickstart --check

more:  primus <runtime> --help     primus direct -- <task> --help     primus --version
exit codes: 0 success; 2 wrong request; 3 this machine cannot run it; otherwise that of the task (128+n for signal n)
"""


def overview() -> str:
    """The whole text."""
    found = sorted(packages.entry_points(), key=lambda entry: entry.name)
    listed = {title: [e for e in found if e.group == f"primus.{title}"] for title in ("runtimes", "tasks", "commands")}
    summaries = packages.module_summaries({e.module for entries in listed.values() for e in entries})
    text = _HEAD
    for title, entries in listed.items():
        rows = "".join(_row(e.name, summaries[e.module], e.package) for e in entries)
        rows += _dropped_in() if title == "tasks" else ""
        text += f"\n{title}:\n{rows or _none()}"
    return text + _TAIL


def _none() -> str:
    from primus_core.installed.homes import how_to_install

    return f"  none is installed. To train a model: {how_to_install('primus-train')}\n"


def _row(name: str, summary: str, source: str) -> str:
    return f"  {name:<18}{summary or f'(from {source})'}\n"


def _dropped_in() -> str:
    """Tasks of the files that a `primus.yaml` names, and of a person's own; only where there are any."""
    environ = os.environ  # noqa: TID251  # a look, before anything is loaded
    home = environ.get("HOME", "")
    own = environ.get("PRIMUS_PLUGINS") or f"{environ.get('XDG_CONFIG_HOME') or f'{home}/.config'}/primus/plugins"
    if not any(map(os.path.exists, ("primus.yaml", f"{home}/.primus.yaml", own))):
        return ""
    from primus_core.plugins.catalogue import Catalogue
    from primus_machine.host import HostRoot

    dropped = [p for p in Catalogue.here(HostRoot()).of("tasks") if p.target.endswith(".py")]
    return "".join(_row(p.name, p.summary(), p.source) for p in dropped)


def of_request(asked: "Request", catalogue: "Catalogue") -> str:
    """The help that a request asks for, of its runtime or of its task; empty where it asks for none."""
    from primus_core.planning.options import runtime_parser, task_parser

    for layer in asked.layers:
        if {"-h", "--help"} & set(layer.words):
            plugin = catalogue.find("runtimes", layer.runtime)
            parser = runtime_parser(catalogue.runtime(layer.runtime))
            parser.description = plugin.summary()
            return parser.format_help()
    task, name, rest = catalogue.task(asked.task)
    parser = task_parser(task, name)
    if parser.split_rest and not {"-h", "--help"} & set(parser.split_rest(parser, rest)[0]):
        return ""  # it is a word of the program that the task runs
    parser.description = catalogue.find("tasks", name).summary()
    return parser.below(rest).format_help()
