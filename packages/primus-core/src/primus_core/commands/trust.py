"""Trust files that belong to other users, so that Primus runs and loads them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from primus_core.request import former
from primus_core.request.arguments import Parser, parse_segment
from primus_machine.errors import MachineError, RequestError, suggestion
from primus_machine.files import plain_json, trust
from primus_machine.files.atomic import write_atomically
from primus_machine.host import HostRoot

__all__ = ["parser", "run"]

_EPILOG = """examples:
  primus trust /shared/team/configs
  primus trust --list
  primus trust --remove /shared/team/configs

By default, Primus runs and loads only files that belong to you or to root, and that nobody else can write to.
Files in a trusted folder count as yours, whoever wrote them: trust only folders of people who may act as you."""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus trust", epilog=_EPILOG, description="Trust the files of other users in a folder.")
    parser.usage = "primus trust DIR [DIR ...] | --list | --remove DIR [DIR ...]"
    parser.add_argument("folders", nargs="*", metavar="DIR", help="a folder or a file")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--list", action="store_true", help="list the trusted folders")
    which.add_argument("--remove", action="store_true", help="stop trusting DIR")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(words: Sequence[str], layer: str) -> int:
    """Write the decision down, or show those that were made."""
    del layer  # no other setting has a say in it
    args = parse_segment(parser(), words)
    environ = HostRoot().environ
    if bool(args.folders) == args.list:
        raise RequestError(
            "primus trust: name a folder" if not args.list else "--list takes no folder",
            fix="`primus trust DIR`; `primus trust --list` shows the trusted folders",
        )
    known = list(trust.named(environ))
    if not args.list:
        before, known = known, _changed(known, args.folders, remove=args.remove)
        if known != before:
            _write(known, environ)
    _show(known, args.folders, is_list=args.list, remove=args.remove, as_json=args.json)
    return 0


def _changed(known: Sequence[str], folders: Sequence[str], *, remove: bool) -> list[str]:
    wanted = [os.path.realpath(os.path.expanduser(folder)) for folder in folders]
    for given, real in zip(folders, wanted, strict=True):
        if "\n" in real:
            raise RequestError("a path with a line break cannot be trusted", fix="rename the folder")
        if remove and real not in known:
            near = suggestion(real, known) or "`primus trust --list` shows the trusted folders"
            raise RequestError(f"{given} is not trusted by name", fix=near)
        if not remove and not os.path.exists(real):
            raise _missing(given, real)
    if remove:
        return [folder for folder in known if folder not in wanted]
    return list(dict.fromkeys((*known, *wanted)))


def _missing(given: str, real: str) -> RequestError:
    above, name = os.path.split(real)
    near = suggestion(name, os.listdir(above)) if os.path.isdir(above) else ""
    found = former.answer("trust", given)
    fix = found.fix or near or "check the path"
    return RequestError(f"there is no folder '{given}'", fix=fix, options=[given], meant=found.meant)


def _write(known: Sequence[str], environ: Mapping[str, str]) -> None:
    path = trust.named_file(environ)
    if not path:
        raise MachineError("your home folder is unknown", fix="export HOME=... or XDG_CONFIG_HOME=...")
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_atomically(path, "".join(f"{folder}\n" for folder in known), mode=0o600)
    except OSError as error:
        fix = "export XDG_CONFIG_HOME=... with a folder of yours"
        raise MachineError(f"{path} cannot be written", why=str(error.strerror), fix=fix) from None


def _show(known: Sequence[str], folders: Sequence[str], *, is_list: bool, remove: bool, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(plain_json.dumps({"trusted": list(known)}, indent=1) + "\n")
    elif is_list:
        sys.stdout.write("".join(f"{folder}\n" for folder in known) or "no folder is trusted\n")
    else:
        word = "no longer trusted" if remove else "trusted"
        sys.stdout.write("".join(f"{word}: {os.path.realpath(os.path.expanduser(folder))}\n" for folder in folders))
