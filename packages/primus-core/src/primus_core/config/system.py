"""The system config: what a person sets once for all in `primus.yaml`, in layers of which a later one wins.

    packaged < ~/.primus.yaml < ./primus.yaml < --config FILE

Mappings merge, anything else is replaced. A folder without such files costs three looks at the file system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from primus_core import variables
from primus_core.config import own_plugins, packaged, submission
from primus_core.config.document import Document, Path, at, dotted
from primus_core.config.option_defaults import apply_defaults
from primus_machine.errors import Mistakes
from primus_machine.files import trust
from primus_machine.variables import HOME

if TYPE_CHECKING:
    from primus_machine.host import HostRoot

__all__ = ["EXTRA", "FILE", "PREFLIGHT", "Layer", "Setting", "SystemConfig", "apply_defaults", "load"]

EXTRA = "--config"
"""The name of the layer that the command line adds."""
FILE = "primus.yaml"

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
PREFLIGHT = "preflight"
"""The task that runs before others (`planning.preflight_step`); its options stand here as a runtime's do."""
_NUMBERS = {"seconds": ("a number of seconds", 0), "factor": ("a factor", 1)}
_NOTHING: Mapping[str, str] = {}


class Layer(NamedTuple):
    """One place where settings may stand, and what it says."""

    name: str
    path: str
    """Empty: there is no such place (no HOME)."""
    document: Document | None
    """None: there is no such file."""


class Setting(NamedTuple):
    """One value of the result: where it stands, and what it won over, strongest first, as (value, place)."""

    key: str
    value: Any
    origin: str
    overrode: tuple[tuple[Any, str], ...]


class SystemConfig:
    """The layers, weakest first, and what they come to. All paths are absolute."""

    def __init__(self, layers: tuple[Layer, ...] = (), environ: Mapping[str, str] = _NOTHING) -> None:
        self.layers, self.environ, self.own_plugins = layers, environ, own_plugins.files(environ)
        self._own = _merged(layer.document for layer in layers)

    @cached_property
    def packaged(self) -> Layer:
        """The lowest layer, read when somebody asks: reading it costs more than looking for all the others."""
        return Layer(packaged.NAME, packaged.FILE, packaged.of_all_runtimes().merged_onto(self._kernel))

    @cached_property
    def _kernel(self) -> Document:
        """What the kernel says in it: no package's file can be wrong for a command that asks for nothing else."""
        return packaged.kernel()

    @cached_property
    def document(self) -> Document:
        """The result; it knows the file and line of each key."""
        return _merged((self.packaged.document, self._own))

    @property
    def values(self) -> dict[str, Any]:
        """The result as plain data."""
        return self.document.data

    def section(self, runtime: str) -> Document:
        """What the files say for the options of a runtime, or of preflight."""
        return self._own.section((runtime,))

    def whole_section(self, runtime: str) -> Document:
        """The same on top of what the runtime's package says."""
        return _merged((packaged.of_runtime(runtime), self._own)).section((runtime,))

    def _paths(self, *path: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(at(self._own.data, path) or ()))

    @property
    def plugin_files(self) -> tuple[str, ...]:
        """Files with tasks and hooks: those that the layers name, and those in the person's own folder."""
        return tuple(dict.fromkeys((*self._paths("plugins"), *self.own_plugins)))

    @property
    def hook_folders(self) -> tuple[str, ...]:
        """Folders with hook scripts."""
        return self._paths("hooks", "folders")

    @property
    def patches(self) -> tuple[str, ...]:
        """Patch scripts."""
        return self._paths("hooks", "patches")

    @property
    def profile(self) -> str:
        """A file with a GPU profile; empty: none."""
        return at(self._own.data, ("profile",)) or ""

    @property
    def model_files(self) -> tuple[str, ...]:
        """Files with models of a person's own."""
        return self._paths("models")

    @property
    def signature_files(self) -> tuple[str, ...]:
        """Files and folders with failure signatures of a person's own."""
        return self._paths("signatures")

    @property
    def workspace(self) -> str:
        """The folder where `primus runs` looks; empty: not set."""
        return at(self._own.data, ("workspace",)) or ""

    @property
    def hook_timeout_s(self) -> float:
        """How long a hook script or a patch may take."""
        return self._seconds("timeout_s")

    @property
    def event_timeout_s(self) -> float:
        """How long a Python hook may take for one event."""
        return self._seconds("event_timeout_s")

    def _seconds(self, name: str) -> float:
        return float(at(_merged((self._kernel, self._own)).data, ("hooks", name)))

    def settings(self) -> list[Setting]:
        """Every value of the result, by key."""
        documents = [layer.document for layer in (self.packaged, *self.layers) if layer.document][::-1]
        found = []
        for path in sorted(_leaves(self.values)):
            values = [(at(d.data, path), d.where(path)) for d in documents if path in set(_leaves(d.data))]
            found.append(Setting(dotted(path), *values[0], tuple(values[1:])))
        return found


def load(host: HostRoot, extra: str = "") -> SystemConfig:
    """The system config of a person in the current folder; `extra` is the file that `--config` or PRIMUS_CONFIG names.

    Raises:
        ConfigError: a file is malformed, has an unknown key, a value of the wrong type, or names what is not there.
    """
    home, extra = _home(host.environ), extra or host.environ.get(variables.CONFIG, "")
    places = [
        ("~/.primus.yaml", home and os.path.join(home, f".{FILE}")),
        (f"./{FILE}", os.path.join(host.cwd(), FILE)),
    ]
    layers = [_layer(name, path, host.environ, required=False) for name, path in places]
    if extra:
        path = os.path.join(host.cwd(), os.path.expanduser(extra))
        layers.append(_layer(EXTRA, path, host.environ, required=True))
    return SystemConfig(tuple(layers), host.environ)


def _layer(name: str, path: str, environ: Mapping[str, str], *, required: bool) -> Layer:
    submitted = submission.of(environ) if path else None
    source = submitted.copy(path) if submitted else path
    if not required and not (source and os.path.lexists(source)):
        return Layer(name, path, None)
    believed = trust.of(environ)
    if not required and (why := believed.doubt(source)):  # the person names the other one themselves
        trust.say(source, why, name)
        return Layer(name, path, None)
    from primus_core.config import files  # YAML: 20 ms that a folder without the file saves

    document = files.read(source, environ, opener=None if required else believed.opener)
    return Layer(name, path, _Checked(document, path, environ, submitted).document())


def _home(environ: Mapping[str, str]) -> str:
    """The person's home folder: in a container, the one outside."""
    return environ.get(HOME) or environ.get("HOME", "")


def _merged(documents: Iterator[Document | None] | tuple[Document | None, ...]) -> Document:
    result = Document({})
    for document in documents:
        result = document.merged_onto(result) if document else result
    return result


def _leaves(data: Mapping[str, Any], before: Path = ()) -> Iterator[Path]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*before, key))
        else:
            yield (*before, key)


def _shown(path: Path, value: Any) -> str:
    """A value as an error may quote it."""
    from primus_machine.secrets.redaction import quoted  # only an error needs it

    return quoted(value, str(path[-1]))


class _Checked:
    """One file, every key of it checked, paths made whole."""

    def __init__(
        self, source: Document, path: str, environ: Mapping[str, str], submitted: submission.Submission | None
    ) -> None:
        self.source, self.folder, self.home = source, os.path.dirname(path), _home(environ)
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
        from primus_machine.errors import suggestion

        fix = suggestion(str(path[-1]), known) or f"remove it{more}"
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
            self._fail((key,), f"`{key}` takes keys and values", why=f"it is {_shown((key,), value)}")
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
        self._fail(path, f"`{dotted(path)}` takes {shape}", why=f"it is {_shown(path, value)}")

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
            shown = _shown(path, text)
            self._fail(
                path,
                f"there is no {kind} {shown}",
                why=f"looked for {os.path.normpath(os.path.join(self.folder, shown[1:-1]))}",
                fix="check the path: it is relative to this file",
            )
        if kind != "path" and (why := self.trust.doubt(whole)):
            self._fail(path, f"the {kind} {_shown(path, text)} is not trusted", why=why, fix=trust.fix(whole))
        return whole
