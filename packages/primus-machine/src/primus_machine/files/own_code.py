"""A person's own Python files: read as text, and run where they are trusted."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType

from primus_machine.errors import ConfigError
from primus_machine.files import trust
from primus_machine.host import HostRoot

__all__ = ["module", "parsed"]


def parsed(path: str) -> ast.Module:
    """The file's text as a tree: what it declares is found without running it.

    Raises:
        ConfigError: the file is no Python.
    """
    try:
        with open(path, encoding="utf-8", opener=trust.of(HostRoot().environ).opener) as file:
            return ast.parse(file.read(), path)
    except (OSError, SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if line else path
        raise ConfigError("this plugin file cannot be read", where=where, why=str(error)) from None


class _Loader(SourceFileLoader):
    """Runs only what is trusted, and neither leaves nor takes bytecode: a dry run writes nothing, in a repository that
    would be taken for a change of the code, and it may be another file's.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        with open(path, "rb", opener=trust.of(HostRoot().environ).opener) as file:
            return compile(file.read(), path, "exec", dont_inherit=True)


def module(path: str) -> ModuleType:
    """Run the file. Whatever it raises comes through."""
    name = "primus_plugin_" + os.path.basename(path).removesuffix(".py")
    loader = _Loader(name, path)
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made  # dataclasses look their module up there
    loader.exec_module(made)
    return made
