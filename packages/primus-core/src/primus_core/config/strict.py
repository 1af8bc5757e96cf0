"""pydantic as we use it: data from outside has no unknown keys, and nothing is converted."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Strict"]


class Strict(BaseModel):
    """The base of all data from outside."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
