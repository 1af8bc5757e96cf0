"""The hooks in a person's file, found in its text and checked against the hooks that there are, without running it.

So a misspelt hook is refused by planning and by a dry run, with file and line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from primus_core.hooks.data import HOOKS
from primus_machine.errors import ConfigError, suggestion

__all__ = ["Declared", "check", "declared", "problem"]

_OWN_SCOPE = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Declared(NamedTuple):
    """One function marked with `@hookimpl`."""

    function: str
    hook: str
    arguments: tuple[str, ...]
    line: int
    wrong: str = ""
    """Why it could never be called, other than by its names."""


def declared(tree: ast.Module) -> list[Declared]:
    """Every function in `tree` that is marked with `@hookimpl`, by line."""
    found = [_declared(node, decorator, top) for node, top in _functions(tree) if (decorator := _marker(node))]
    return sorted(found, key=lambda hook: hook.line)


def _functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """Each function, and whether it is a name of the module (an `if` or `try` around it makes no difference)."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, True)]
    while waiting:
        node, top = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield child, top
            waiting.append((child, top and not isinstance(child, _OWN_SCOPE)))


def _marker(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if getattr(called, "id", getattr(called, "attr", "")) == "hookimpl":
            return decorator
    return None


def _declared(function: ast.FunctionDef | ast.AsyncFunctionDef, decorator: ast.expr, top: bool) -> Declared:
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    named = [k.value.value for k in keywords if k.arg == "specname" and isinstance(k.value, ast.Constant)]
    plain = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    needed = plain[: len(plain) - len(function.args.defaults)]  # pluggy passes nothing to one with a default
    wrong = "" if top else "it is inside a class or a function, where Primus does not find it"
    if isinstance(function, ast.AsyncFunctionDef):
        wrong = "an `async def` would never be awaited"
    return Declared(function.name, str(named[0]) if named else function.name, tuple(needed), function.lineno, wrong)


def check(hooks: Iterable[Declared], path: str) -> None:
    """Raise for the first of the file's hooks that cannot work.

    Raises:
        ConfigError: no hook has this name, or this argument.
    """
    for hook in hooks:
        where = f"{path}:{hook.line}"
        if hook.wrong:
            raise ConfigError(f"the hook '{hook.function}' can never be called", where=where, why=hook.wrong)
        if found := problem(hook.function, hook.hook, hook.arguments):
            what, why, fix = found
            raise ConfigError(what, where=where, why=why, fix=fix)


def problem(function: str, hook: str, arguments: Sequence[str]) -> tuple[str, str, str] | None:
    """What is wrong with a function for `hook` that takes `arguments`, as (what, why, fix); None: nothing."""
    if hook not in HOOKS:
        fix = suggestion(hook, HOOKS) or "use one of them, or remove `@hookimpl`"
        return f"unknown hook '{hook}'", f"hooks: {', '.join(HOOKS)}", fix
    for argument in arguments:
        if argument not in HOOKS[hook]:
            what = f"the hook '{function}' has the argument '{argument}', which {hook} does not provide"
            fix = suggestion(argument, HOOKS[hook]) or "remove it"
            return what, f"{hook} provides: {', '.join(HOOKS[hook])}", fix
    return None
