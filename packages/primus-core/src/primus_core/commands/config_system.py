"""`primus config system`: what the layers of `primus.yaml` come to, and which file and line each value is from."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from primus_core.config import system as system_config
from primus_core.config.system import Layer, Setting, SystemConfig
from primus_core.plugins.catalogue import Catalogue
from primus_machine.host import HostRoot
from primus_machine.secrets.redaction import redact, secret_values, without_secrets

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Show the merged settings; everything that a launch would refuse in them is refused here."""
    host = HostRoot()
    config = system_config.load(host, args.config or args.layer)
    _check_options(config)
    text = _as_json(config) if args.json else _as_text(config)
    sys.stdout.write(redact(text, secret_values(host.environ)))
    return 0


def _check_options(config: SystemConfig) -> None:
    """Each runtime's section against its options; a launch checks only the one that it uses."""
    from primus_core.planning.options import runtime_parser

    catalogue = Catalogue(config)
    for name in catalogue.names("runtimes"):
        section = config.section(name)
        if section.data:
            system_config.apply_defaults(runtime_parser(catalogue.runtime(name)), section)


def _as_json(config: SystemConfig) -> str:
    layers = [{"name": la.name, "path": la.path, "exists": la.document is not None} for la in _layers(config)]
    settings = [_plain(setting) for setting in _settings(config)]
    return json.dumps({"layers": layers, "settings": settings}, indent=1) + "\n"


def _plain(setting: Setting) -> dict[str, Any]:
    overrode = [{"value": value, "origin": origin} for value, origin in setting.overrode]
    return {"key": setting.key, "value": setting.value, "origin": setting.origin, "overrode": overrode}


def _as_text(config: SystemConfig) -> str:
    lines = ["layers (a later one wins):"]
    lines += [f"  {layer.name:<16}{_state(layer)}" for layer in _layers(config)]
    lines += ["", f"{'key':<28}{'value':<26}  from"]
    for setting in _settings(config):
        lines.append(f"{setting.key:<26}  {_short(setting.value):<26}  {_place(setting.origin)}")
        lines += [f"{'':<28}  over {_short(value)} ({_place(origin)})" for value, origin in setting.overrode]
    return "\n".join(lines) + "\n"


def _settings(config: SystemConfig) -> Iterator[Setting]:
    """The settings, safe to show: `env: [HF_TOKEN=...]` may hold a secret, and so may a flag that is passed on."""
    for setting in config.settings():
        name = setting.key.rpartition(".")[2]
        overrode = tuple((without_secrets(value, name), origin) for value, origin in setting.overrode)
        yield setting._replace(value=without_secrets(setting.value, name), overrode=overrode)


def _layers(config: SystemConfig) -> list[Layer]:
    return [config.packaged, *config.layers]


def _state(layer: Layer) -> str:
    if not layer.path:
        return "(HOME is not set)"
    return layer.path if layer.document else f"{layer.path} (does not exist)"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _place(origin: str) -> str:
    """A place below the folder where the person stands, from there."""
    return origin.removeprefix(os.path.join(os.getcwd(), ""))
