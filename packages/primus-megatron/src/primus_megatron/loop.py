"""Megatron's training loop, called as each version wants it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from primus_core.errors import RequestError
from primus_megatron.batches import datasets, forward_step

__all__ = ["pretrain"]

Settings = Mapping[str, Any]
Provider = Callable[..., Any]


def pretrain(version: tuple[int, ...], settings: Settings, model_provider: Provider) -> None:
    """Train with `settings`, Megatron's arguments by name.

    Raises:
        RequestError: Megatron refuses them.
    """
    sys.argv = sys.argv[:1]  # Megatron parses it; the settings come as defaults of its parser
    if version == (0, 17):
        _pretrain_0_17(settings, model_provider)
    else:
        _pretrain_with_config(version, settings, model_provider)


def _defaults(settings: Settings) -> Callable[[Any], Any]:
    def set_defaults(parser: Any) -> Any:
        parser.set_defaults(**settings)  # argparse converts text with the argument's own type
        return parser

    return set_defaults


def _pretrain_0_17(settings: Settings, model_provider: Provider) -> None:
    from megatron.core.enums import ModelType
    from megatron.training import initialize
    from megatron.training import pretrain as loop

    validate = initialize.validate_args
    initialize.validate_args = lambda *args, **kwargs: _or_refuse(validate, *args, **kwargs)
    loop(datasets, model_provider, ModelType.encoder_or_decoder, forward_step, extra_args_provider=_defaults(settings))


def _pretrain_with_config(version: tuple[int, ...], settings: Settings, model_provider: Provider) -> None:
    from megatron.core.enums import ModelType
    from megatron.training import pretrain as loop
    from megatron.training.argument_utils import pretrain_cfg_container_from_args
    from megatron.training.arguments import parse_and_validate_args

    config = pretrain_cfg_container_from_args(_or_refuse(parse_and_validate_args, _defaults(settings)))
    kind = ModelType.encoder_or_decoder
    if version == (0, 18):
        loop(config, datasets, model_provider, kind, forward_step)
    else:
        loop(config, datasets, kind, forward_step, model_provider=model_provider)


def _or_refuse(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Megatron refuses arguments with assertions."""
    try:
        return call(*args, **kwargs)
    except (AssertionError, ValueError) as error:
        import traceback

        at = traceback.extract_tb(error.__traceback__)[-1]
        raise RequestError(
            "Megatron rejects these settings", why=str(error) or f"{at.line} ({at.filename}:{at.lineno})"
        ) from error
