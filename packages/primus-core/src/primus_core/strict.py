"""pydantic as we use it: data from outside has no unknown keys, nothing is converted, and no plugin listens.

To find plugins, pydantic reads the metadata of all that is installed and imports those it finds: one that is broken
would end every command that reads a file. Its variable for that, PYDANTIC_DISABLE_PLUGINS, would reach the ranks, too.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.plugin import _loader

__all__ = ["Strict", "TypeAdapter"]

_loader._plugins = {}  # noqa: SLF001  # as if it had looked and found none; there is no public way within a process


class Strict(BaseModel):
    """The base of all data from outside."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
