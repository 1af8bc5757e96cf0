"""Every error that Primus shows a person: what happened, why, and what to do about it.

    PrimusError                 exit 1
    ├── RequestError            exit 2: the request was wrong, nothing was started
    │   └── ConfigError         the same, in a file: it names file and line
    │       └── SeveralErrors   more than one at once; exit 3 where all of them are of the machine
    ├── MachineError            exit 3: this machine or environment cannot run it
    ├── AlreadyRefused          a check asked for a value that another error is about
    ├── TrainingError           exit 1: training began, and did not reach its end
    └── RunDirectoryTaken       another run took the directory first: plan again

Anything else that reaches `main` is a bug of ours.

The texts are for people. Code that depends on what is wrong reads fields: `kind`, `options`, `where`, `meant`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

__all__ = [
    "AlreadyRefused",
    "ConfigError",
    "MachineError",
    "Mistakes",
    "PrimusError",
    "RequestError",
    "RunDirectoryTaken",
    "SeveralErrors",
    "TrainingError",
    "as_line",
    "expect",
    "nearest",
    "printed_in",
    "suggestion",
]


_PREFIX = "primus: error: "
"""The beginning of an error on stderr, where the Primus around one on a node finds it."""


class PrimusError(Exception):
    """Something a person can act on. `what` is one line; `why` and `fix` may be longer."""

    exit_code = 1
    is_final = False
    """It cannot be done at all, so that whatever else is wrong with the request need not be said."""

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        fix: str = "",
        kind: str = "",
        options: Sequence[str] = (),
        where: str = "",
        meant: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what, self.why, self.fix = what, why, fix
        self.kind = kind
        """What kind of mistake it is, where code depends on it: `unknown`, `missing`, `misplaced`, ..."""
        self.options = tuple(options)
        """The words of the command line that it is about; for `missing`, those that are not there."""
        self.where = where
        """The file with line; or the runtime, task or command whose words it is about."""
        self.meant = meant
        """What to type in the place of `option`, as a shell reads it; empty: nothing; None: not known."""

    @property
    def option(self) -> str:
        """The first word of the command line that it is about; empty: it is about none."""
        return self.options[0] if self.options else ""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The error as text: `what`, then `why:` and `fix:` where there are any."""
        parts = [("why: ", self.why), ("fix: ", self.fix)]
        hang = "\n       "
        return [self.what] + [f"  {label}{text.replace(chr(10), hang)}" for label, text in parts if text]

    def each(self) -> tuple[PrimusError, ...]:
        """The errors that it stands for: itself, unless it is several."""
        return (self,)

    def retold(self, change: Callable[[str], str]) -> PrimusError:
        """The same error, each of its texts changed."""
        for one in (self, *(one for one in self.each() if one is not self)):
            one.what, one.why, one.fix = map(change, (one.what, one.why, one.fix))
            one.args = (one.what,)
            one.options = tuple(map(change, one.options))
        return self


class RequestError(PrimusError):
    """The request was wrong. Nothing was started, nothing was written."""

    exit_code = 2


class ConfigError(RequestError):
    """A file of the user is wrong. `where` is `file:line` (or `file`)."""

    def __init__(self, what: str, *, where: str = "", **fields: Any) -> None:
        super().__init__(f"{where}: {what}" if where else what, where=where, **fields)


class MachineError(PrimusError):
    """The environment cannot run it: something is missing here that the plan needs."""

    exit_code = 3


class SeveralErrors(ConfigError):  # noqa: N818  # the plural says what it is
    """All mistakes of one request. Who asks for `what`, `why` and `fix` gets those of the first."""

    def __init__(self, errors: Iterable[PrimusError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        super().__init__(
            first.what, why=first.why, fix=first.fix, kind=first.kind, options=first.options, meant=first.meant
        )
        self.where = first.where
        self.exit_code = min(error.exit_code for error in self.errors)

    def lines(self) -> list[str]:
        """The lines of each, one error after the other."""
        return [line for error in self.errors for line in error.lines()]

    def each(self) -> tuple[PrimusError, ...]:
        """Each of them."""
        return self.errors


class AlreadyRefused(PrimusError):  # noqa: N818  # it names what happened; nobody is shown it
    """A check needs a value that has been refused, so it has nothing to say. `Mistakes` drops it."""


_MOST_MISTAKES = 100
"""After so many, the search for more ends: each costs a search for what was meant."""


class Mistakes:
    """Collects errors, so that a person sees all of them at once.

    mistakes = Mistakes()
    with mistakes:
        check_layout(settings)
    with mistakes:
        check_data(settings)
    mistakes.refuse()
    """

    def __init__(self) -> None:
        self.found: list[PrimusError] = []
        self._texts: set[str] = set()

    def __enter__(self) -> None:
        """What follows may raise."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Keep an error about the request or the machine; let everything else pass. Nobody reads more than some."""
        if isinstance(error, RequestError | MachineError):
            self.add(error)
            if len(self.found) >= _MOST_MISTAKES:
                self.refuse()
        return isinstance(error, RequestError | MachineError | AlreadyRefused)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.found)

    def add(self, *errors: PrimusError) -> None:
        """Keep them; what was found twice is one."""
        for one in (one for error in errors for one in error.each()):
            if (text := str(one)) not in self._texts:
                self._texts.add(text)
                self.found.append(one)

    def refuse(self) -> None:
        """Raise what was found, if anything was; of what is final, the first alone.

        Raises:
            PrimusError: the one mistake, or `SeveralErrors`.
        """
        found = [error for error in self.found if error.is_final][:1] or self.found
        if found:
            raise found[0] if len(found) == 1 else SeveralErrors(_by_place(found))


def _by_place(errors: list[PrimusError]) -> list[PrimusError]:
    """Those of a file by line, file after file; then those that have no line."""
    places = [error.where.rpartition(":") for error in errors]
    files = list(dict.fromkeys(file for file, _, line in places if line.isdecimal()))
    keys = [(files.index(file), int(line)) if line.isdecimal() else (len(files), 0) for file, _, line in places]
    return [errors[index] for index in sorted(range(len(errors)), key=keys.__getitem__)]


def as_line(error: object) -> str:
    """Return an error as the command prints it."""
    return f"{_PREFIX}{error}\n"


def printed_in(text: str) -> list[str]:
    """Return each error that a Primus has printed into `text`, with the indented lines that belong to it."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if _PREFIX in line:
            found.append([line.partition(_PREFIX)[2]])
        elif found and line.startswith("  "):
            found[-1].append(line)
    return ["\n".join(lines) for lines in found]


class TrainingError(PrimusError):
    """Training began, and did not reach its end."""


class RunDirectoryTaken(PrimusError):  # noqa: N818  # it names what happened; nobody is shown it
    """The planned run directory appeared between planning and executing."""


_ALIKE = 0.7
"""How alike options must be, without their dashes: `--format` is no slip of `--force`."""


_LEAST = 0.6
"""So much alike is a misspelt word, unless somebody wants to be surer."""
_SHORTEST = 3
"""Letters of the beginning of a word that stand for it."""


def suggestion(word: str, known: Iterable[str], alike: float = _LEAST) -> str:
    """`did you mean 'x'? ` for the known word nearest to `word`, or an empty string where none is so much `alike`."""
    near = nearest(word, known, alike)
    return f"did you mean '{near}'?" if near else ""


def nearest(word: str, known: Iterable[str], alike: float = _LEAST) -> str:
    """The known word nearest to `word`, or the only one that begins with it; empty where none is so much `alike`."""
    import difflib  # only an error needs it

    known = sorted(set(known))
    reverse = [word[::-1], *(name[::-1] for name in known)]
    end = os.path.commonprefix(reverse)[::-1]  # noqa: RUF071  # `...Tokenizer`: it makes none of them alike
    end = end if len(known) > 1 and len(end) > _MOST_SHARED else ""
    word = word.removesuffix(end)
    folded = {_folded(name.removesuffix(end)): name for name in known}
    alike = max(alike, _ALIKE) if word.startswith("--") else alike  # another option does another thing
    near = [one for one in folded if sorted(one) == sorted(_folded(word))]  # `form` is `from`: a slip of two fingers
    near = near or difflib.get_close_matches(_folded(word), list(folded), n=1, cutoff=alike)
    if not near and alike <= _LEAST and len(word) >= _SHORTEST:
        longer = [one for one in folded if one.startswith(_folded(word))]  # `GPT2` of `GPT2BPETokenizer`
        near = longer if len(longer) == 1 else []
    return folded[near[0]] if near else ""


_MOST_SHARED = 3
"""Letters at the end of a word that count where all others end alike."""


def _folded(name: str) -> str:
    return name.lower().replace("-", "_").removeprefix("__")


T = TypeVar("T")


def expect(value: object, kind: type[T], whose: str) -> T:
    """What the plugin `whose` returned.

    Raises:
        MachineError: it is no `kind`, or a field of it is not what that declares.
    """
    if not isinstance(value, kind):
        raise _broken(whose, f"it must return {kind.__name__}, and returned {type(value).__name__}")
    for name, declared in getattr(kind, "__annotations__", {}).items():
        words = str(getattr(declared, "__forward_arg__", declared))  # a named tuple keeps them as an object
        if not _fits(getattr(value, name), words, kind.__module__):
            field = f"`{name}` of the {kind.__name__} that it returned"
            raise _broken(whose, f"{field} must be {words}, and is {getattr(value, name)!r:.60}")
    return value


def _fits(value: object, declared: str, module: str) -> bool:
    """Whether a field is of the class that it is declared with, or a sequence of such: deeper nobody looks."""
    name = declared.removeprefix("tuple[").removesuffix(", ...]")
    kind = vars(sys.modules[module]).get(name, str if name == "str" else None)
    if not isinstance(kind, type):
        return True
    items = [value] if name == declared else value
    return isinstance(items, list | tuple) and all(isinstance(item, kind) for item in items)


def _broken(whose: str, why: str) -> MachineError:
    return MachineError(f"{whose} is broken", why=why, fix="report this to those who maintain it")
