"""What one preparation is given: its settings, the files that were found, and what encodes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from primus_data.preparing.encoding import Encoder
from primus_data.preparing.settings import Settings
from primus_data.sources.files import File

__all__ = ["Given"]


class Given(NamedTuple):
    """What is prepared, and with what."""

    settings: Settings
    files: Sequence[File]
    encoder: Encoder
    outcome: dict[str, Any]
    fingerprint: str
