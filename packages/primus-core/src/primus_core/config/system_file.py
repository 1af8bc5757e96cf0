"""One file of the system config, a `primus.yaml`: every key of it checked, its paths made whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from primus_core.config import files
from primus_core.config.document import Document, Path, dotted
from primus_core.config.system import PREFLIGHT, home_of
from primus_machine.errors import Mistakes
from primus_machine.files import trust

if TYPE_CHECKING:
    from primus_core.config.submitted_files import Submission

__all__ = ["read"]

_EXAMPLES = "docs/system-config.md shows each"
_WATCHED = ("loss_spike", "grad_norm_spike", "slow_step", "slow_rank", "rank_pause", "slow_gpu")
"""What `primus-watch` reports by a factor; spelt here, since a misspelt key is refused before anything starts."""
# What each fixed key takes. Any other key at the top is the name of a runtime, or of the task that runs before others.
_KEYS: Mapping[Path, str] = {
    ("plugins",): "files",
    ("workspace",): "path",
    ("profile",): "file",
    ("models",): "files",
    ("signatures",): "paths",
    ("hooks", "folders"): "folders",
    ("hooks", "patches"): "files",
    ("hooks", "timeout_s"): "seconds",
    ("hooks", "event_timeout_s"): "seconds",
    **{("watch", name): "factor" for name in _WATCHED},
}
_SECTIONS = frozenset(path[0] for path in _KEYS if len(path) > 1)
_NUMBERS = {"seconds": ("a number of seconds", 0), "factor": ("a factor", 1)}


def _shown(path: Path, value: Any) -> str:
    """A value as an error may quote it."""
    from primus_machine.secrets.redaction import quoted  # only an error needs it

    return quoted(value, str(path[-1]))


def read(
    source: str,
    path: str,
    environ: Mapping[str, str],
    submitted: Submission | None,
    opener: Callable[[str, int], int] | None,
) -> Document:
    """The file `path`, which is read from `source`: it may be a copy.

    Raises:
        ConfigError: it is malformed, has an unknown key, a value of the wrong type, or names what is not there.
    """
    return _Checked(files.read(source, environ, opener=opener), path, environ, submitted).document()


class _Checked:
    """One file, every key of it checked, paths made whole."""

    def __init__(self, source: Document, path: str, environ: Mapping[str, str], submitted: Submission | None) -> None:
        self.source, self.folder, self.home = source, os.path.dirname(path), home_of(environ)
        self.submitted, self.trust = submitted, trust.of(environ)
        self.mistakes = Mistakes()

    def document(self) -> Document:
        if "modules" in self.source.data:
            self._no_experiment()
        data: dict[str, Any] = {}
        marks = dict(self.source.marks)
        for key, value in self.source.data.items():
            with self.mistakes:
                data[key] = self._key(key, value, marks)
        self.mistakes.refuse()
        return Document(data, marks)

    def _key(self, key: str, value: Any, marks: dict[Path, str]) -> Any:
        if (key,) in _KEYS:
            return self._value((key,), value)
        if key not in _SECTIONS:
            self._require_runtime(key)
            return self._options(key, value, marks)
        found = {}
        for name, below in self._section(key, value).items():
            with self.mistakes:
                found[name] = self._value((key, name), below)
        return found

    def _no_experiment(self) -> NoReturn:
        """Refuse `primus --config exp.yaml ...`: one would get an error for each of its keys."""
        import shlex

        file = self.source.where(("modules",)).rpartition(":")[0]
        fix = f"primus direct -- train pretrain --config {shlex.quote(os.path.relpath(file))}"
        self._fail(("modules",), "this is an experiment, not a system config", why="the task `train` reads it", fix=fix)

    def _fail(self, path: Path, what: str, *, why: str = "", fix: str = "") -> NoReturn:
        from primus_machine.errors import ConfigError

        raise ConfigError(what, where=self.source.where(path), why=why, fix=fix)

    def _unknown(self, path: Path, known: list[str], more: str) -> NoReturn:
        from primus_core.request import former
        from primus_machine.errors import suggestion

        fix = former.instead("primus.yaml", dotted(path)) or suggestion(str(path[-1]), known) or f"remove it{more}"
        self._fail(path, f"unknown key '{dotted(path)}'", why=f"known: {', '.join(known)}", fix=fix)

    @cached_property
    def _runtimes(self) -> set[str]:
        """Those that are here, and those of our packages that may be: a file for many machines has theirs, too."""
        from primus_core.installed import homes
        from primus_machine import packages

        here = {entry.name for entry in packages.entry_points("primus.runtimes")}
        return {PREFLIGHT, *here, *homes.names("runtimes")}

    def _require_runtime(self, key: str) -> None:
        if key not in self._runtimes:
            known = sorted({str(path[0]) for path in _KEYS} | self._runtimes)
            self._unknown((key,), known, ", or install the package whose runtime it is")

    def _section(self, key: str, value: Any) -> Mapping[str, Any]:
        if value is not None and not isinstance(value, Mapping):
            self._fail((key,), f"`{key}` takes keys and values", why=f"it is {_shown((key,), value)}", fix=_EXAMPLES)
        return value or {}

    def _options(self, runtime: str, value: Any, marks: dict[Path, str]) -> dict[str, Any]:
        """A runtime's section, each option spelt with `-`. What they take, the runtime's parser knows."""
        options: dict[str, Any] = {}
        for name, item in self._section(runtime, value).items():
            spelt = name.replace("_", "-")
            if spelt in options:
                self._fail((runtime, name), f"'{spelt}' is set twice: `-` and `_` are equal", fix="keep one")
            options[spelt] = self._from_home(item)
            marks[runtime, spelt] = self.source.where((runtime, name))
        return options

    def _from_home(self, item: Any) -> Any:
        """`~/x` with the home folder that it means, here and in a container."""
        if isinstance(item, list):
            return [self._from_home(one) for one in item]
        return f"{self.home}{item[1:]}" if self.home and isinstance(item, str) and item.startswith("~/") else item

    def _value(self, path: Path, value: Any) -> Any:
        kind = _KEYS.get(path)
        if kind is None:
            self._unknown(path, [str(known[1]) for known in _KEYS if known[:1] == path[:1] and len(known) > 1], "")
        if kind in _NUMBERS:
            return self._number(path, value, *_NUMBERS[kind])
        if kind.endswith("s"):
            items = [] if value is None else value
            if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
                self._misshapen(path, value, "a list of paths")
            return [whole for item in items for whole in self._listed(path, item, kind.removesuffix("s"))]
        if value is not None and not isinstance(value, str):
            self._misshapen(path, value, "a path")
        return self._path(path, value, kind) if value else ""

    def _misshapen(self, path: Path, value: Any, shape: str) -> NoReturn:
        fix = f"write [{value}]" if "list" in shape and isinstance(value, str) else ""
        self._fail(path, f"`{dotted(path)}` takes {shape}", why=f"it is {_shown(path, value)}", fix=fix)

    def _number(self, path: Path, value: Any, shape: str, least: int) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least < value < 1e9:
            self._misshapen(path, value, f"{shape} above {least}")
        return value

    def _listed(self, path: Path, item: str, kind: str) -> Iterator[str]:
        with self.mistakes:
            yield self._path(path, item, kind)

    def _path(self, path: Path, text: str, kind: str) -> str:
        if text == "~" or text.startswith("~/"):
            if not self.home:
                self._fail(path, f"{_shown(path, text)} needs HOME, which is not set", fix="write the whole path")
            text = self.home + text[1:]
        whole = os.path.normpath(os.path.join(self.folder, text))
        if self.submitted and kind != "path":
            whole = self.submitted.path(whole)
        if (kind == "file" and not os.path.isfile(whole)) or (kind == "folder" and not os.path.isdir(whole)):
            shown = _shown(path, text)[1:-1]
            raise files.missing_file(shown, where=self.source.where(path), folder=self.folder, kind=kind)
        if kind != "path" and (why := self.trust.doubt(whole)):
            self._fail(path, f"the {kind} {_shown(path, text)} is not trusted", why=why, fix=trust.fix(whole))
        return whole
