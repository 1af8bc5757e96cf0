"""The tokenizers of MaxText's wheel: it looks for them where a checkout of its repository would have them."""

from __future__ import annotations

import os

from primus_train.kit.patches import Patch

__all__ = ["PATCH"]


def _installed() -> str:
    from maxtext.utils import globals as places

    return os.path.join(places.MAXTEXT_PKG_DIR, "assets")


def _needed() -> bool:
    from maxtext.utils import globals as places

    return not os.path.isdir(places.MAXTEXT_ASSETS_ROOT) and os.path.isdir(_installed())


def _apply() -> None:
    from maxtext.utils import globals as places

    places.MAXTEXT_ASSETS_ROOT = _installed()


PATCH = Patch(
    id="installed-assets",
    reason="MaxText looks for the tokenizers of its wheel in a checkout of its repository",
    needed=_needed,
    apply=_apply,
    link="maxtext/utils/globals.py, MAXTEXT_ASSETS_ROOT",
    since=(0, 2),
    before=(0, 3),
)
