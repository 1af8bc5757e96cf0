"""Finds an exception that has been raised in a rank and does not end it, since a `finally:` or `with` block hangs.

Nobody sees such an exception: Python shows it when the block has ended. A process group's clean-up waits in such a
block for the ranks that go on.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

__all__ = ["watch"]

_LOOK_S = 1.0


def watch(tell: Callable[[BaseException | None], None]) -> None:
    """Call `tell` with an exception of the main thread that waits for a block to end, and with None when it is over."""
    main = threading.main_thread().ident
    threading.Thread(target=_watch, args=(main, tell), daemon=True, name="primus-pending").start()


def _watch(main: int, tell: Callable[[BaseException | None], None]) -> None:
    told = None
    while True:
        time.sleep(_LOOK_S)
        found = _active(main)
        if found is told:
            continue
        if told is not None:
            tell(told := None)
        if found is not None and _waits(found):
            tell(told := found)
        found = None  # or its frames would live on


def _active(thread: int) -> BaseException | None:
    """Return the exception that the thread handles, or that waits in it for a block to end."""
    found = sys._current_exceptions().get(thread)  # noqa: SLF001  # what `faulthandler` reads, too
    return found[1] if isinstance(found, tuple) else found  # Python 3.11 has three values


def _waits(error: BaseException) -> bool:
    """Return whether the code that it has come to is a `finally:` or the end of a `with`, and no `except`."""
    import ast  # only where something was raised
    import linecache

    if not (trace := error.__traceback__):
        return False
    frame = trace.tb_frame  # the outermost frame that it has come to, which goes on
    with suppress(SyntaxError, ValueError):
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals)))
        return any(_is_at_end(node, frame.f_lineno) for node in ast.walk(tree))
    return False


def _is_at_end(node: object, line: int) -> bool:
    import ast

    if isinstance(node, ast.Try | ast.TryStar) and node.finalbody:
        return node.finalbody[0].lineno <= line <= (node.finalbody[-1].end_lineno or line)
    return isinstance(node, ast.With) and node.lineno <= line < node.body[0].lineno
