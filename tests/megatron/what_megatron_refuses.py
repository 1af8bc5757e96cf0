"""Prints what Megatron itself says to each list of settings: `python what_megatron_refuses.py FILE`, as JSON.

FILE has a list of [settings, ranks, environment, "gpu" or "cpu"]; the answer is a list of texts, empty where it takes them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from megatron.core import utils
from megatron.training.argument_utils import pretrain_cfg_container_from_args
from megatron.training.arguments import core_transformer_config_from_args, parse_args, validate_args
from packaging.version import Version

_GPU = {
    "is_available": True, "current_device": 0, "device_count": 8, "get_device_capability": (9, 4),
    "get_device_properties": SimpleNamespace(major=9, minor=4, multi_processor_count=304),
}  # fmt: skip
"""What torch would say of an MI300X."""


def said(settings: dict[str, Any], ranks: int, environ: dict[str, str], device: str) -> str:
    """What Megatron refuses; empty: nothing."""
    others = {"WORLD_SIZE": str(ranks), "RANK": "0", "LOCAL_RANK": "0"}
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, {**environ, **others}))
        for quiet in (contextlib.redirect_stdout, contextlib.redirect_stderr):
            stack.enter_context(quiet(io.StringIO()))
        for name, value in _GPU.items() if device == "gpu" else ():
            stack.enter_context(patch.object(torch.cuda, name, lambda *_, value=value: value))
        if device == "gpu":
            stack.enter_context(patch.object(utils, "_te_version", Version("2.12.0")))  # of Transformer Engine
        try:
            args = parse_args(lambda parser: parser.set_defaults(**settings) or parser)
            args = validate_args(args) or args
            pretrain_cfg_container_from_args(args)
            core_transformer_config_from_args(args)
        except (Exception, SystemExit) as error:
            return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    cases = json.loads(Path(sys.argv.pop()).read_text())
    print(json.dumps([said(*case) for case in cases]))
