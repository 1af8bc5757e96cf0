"""Settings of a layout for which `verify` has no axis: it names them instead of leaving them out silently."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from primus_train.kit.options import Option

__all__ = ["NO_AXIS", "NO_FP8", "left_out"]

NO_AXIS = "verify has no axis for it"
NO_FP8 = "trials compute in float32"
_LONGEST = 60


def left_out(
    given: Mapping[str, Any], reasons: Mapping[str, str], options: Mapping[str, Option], is_tried: Callable[[str], bool]
) -> dict[str, str]:
    """Return the settings of `given` that decide how work is shared and that trials do not have, each with the reason.

    `reasons`: by the pattern of a name. What has its default, or is off, is no part of the layout.
    """
    found: dict[str, str] = {}
    for name, value in given.items():
        why = next((why for pattern, why in reasons.items() if re.fullmatch(pattern, name)), "")
        default = options[name].default if name in options else None
        if why and not is_tried(name) and value is not None and value != default and (value or default):
            text = f"{name}={value if isinstance(value, str) else json.dumps(value)}"
            found[text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."] = why
    return found
