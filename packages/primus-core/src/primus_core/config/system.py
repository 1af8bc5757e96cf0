"""The system config: what a person sets once for all in `primus.yaml`, in layers of which a later one wins.

    packaged < ~/.primus.yaml < ./primus.yaml < --config FILE

Mappings merge, anything else is replaced. A folder without such files costs three looks at the file system.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_core import variables
from primus_core.config import own_plugins, submission
from primus_core.config.document import Document, Path, at, dotted
from primus_machine.files import trust
from primus_machine.variables import HOME

if TYPE_CHECKING:
    from primus_core.request.arguments import Parser
    from primus_machine.host import HostRoot

__all__ = ["EXTRA", "FILE", "PREFLIGHT", "Layer", "Setting", "SystemConfig", "apply_defaults", "home_of", "load"]

EXTRA = "--config"
"""The name of the layer that the command line adds."""
FILE = "primus.yaml"

PREFLIGHT = "preflight"
"""The task that runs before others (`planning.preflight_step`); its options stand here as a runtime's do."""
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
        from primus_core.config import packaged

        return Layer(packaged.NAME, packaged.FILE, packaged.of_all_runtimes().merged_onto(self._kernel))

    @cached_property
    def _kernel(self) -> Document:
        """What the kernel says in it: no package's file can be wrong for a command that asks for nothing else."""
        from primus_core.config import packaged

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
        from primus_core.config import packaged

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
        """The folder of the runs, where nothing else says one; empty: not set."""
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


def apply_defaults(parser: Parser, section: Document) -> tuple[str, ...]:
    """Make the values in `section` the defaults of the parser's options (`option_defaults.apply_defaults`)."""
    if not section.data:
        return ()
    from primus_core.config import option_defaults

    return option_defaults.apply_defaults(parser, section)


def load(host: HostRoot, extra: str = "") -> SystemConfig:
    """The system config of a person in the current folder; `extra` is the file that `--config` or PRIMUS_CONFIG names.

    Raises:
        ConfigError: a file is malformed, has an unknown key, a value of the wrong type, or names what is not there.
    """
    home, extra = home_of(host.environ), extra or host.environ.get(variables.CONFIG, "")
    places = [
        ("~/.primus.yaml", home and os.path.join(home, f".{FILE}")),
        (f"./{FILE}", os.path.join(host.cwd(), FILE)),
    ]
    layers = [_layer(name, path, host.environ, required=False) for name, path in places]
    if extra:
        layers.append(_layer(EXTRA, os.path.join(host.cwd(), os.path.expanduser(extra)), host.environ, required=True))
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
    from primus_core.config import system_file  # YAML: 20 ms that a folder without the file saves

    opener = None if required else believed.opener
    return Layer(name, path, system_file.read(source, path, environ, submitted, opener))


def home_of(environ: Mapping[str, str]) -> str:
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
