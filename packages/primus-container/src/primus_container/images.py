"""The image of a container that nobody named: the one that the GPU's vendor publishes, from `images.toml`."""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from primus_machine.errors import RequestError, nearest
from primus_machine.facts import Facts

__all__ = ["Chosen", "advice", "chosen", "refuse_lone_word"]

_FILE = os.path.join(os.path.dirname(__file__), "images.toml")
_OF_NODE = "<image-of-the-node>"
"""Stands for it where the machine is not known yet: it is chosen there."""


class Chosen(NamedTuple):
    """An image, and what a person should know of the choice; empty: it is their own."""

    image: str
    note: str = ""


def chosen(named: str, facts: Facts, framework: str) -> Chosen:
    """The image to run: the one that is `named`, or the default for these GPUs and the framework.

    Raises:
        RequestError: none is named, and there is no default for this machine.
    """
    if named:
        return Chosen(named)
    if not facts.host.is_known:
        return Chosen(_OF_NODE, "no image is set: each node uses the default for its GPUs")
    for row in _rows():
        if any(gpu.vendor == row["vendor"] for gpu in facts.gpus) and row.get("framework", framework) == framework:
            how = "--image, or `container: {image: ...}` in primus.yaml, names another image"
            return Chosen(row["image"], f"image {row['image']}, the default for {_VENDORS[row['vendor']]} GPUs; {how}")
    raise RequestError(
        "--image is missing",
        why="only machines with AMD or NVIDIA GPUs have a default image, and no GPU was found here",
        fix="add --image IMAGE behind `container`, or set `container: {image: IMAGE}` in primus.yaml\n"
        "or type `direct` instead of `container` and its options, to run without one",
    )


def advice(engine: str, image: str) -> str:
    """Return what to do where podman does not know of which registry a short name is; empty: it names one."""
    registry, slash, _ = image.partition("/")
    if engine != "podman" or "://" in image or (slash and (set(".:") & set(registry) or registry in ("", "localhost"))):
        return ""
    whole = image if slash else f"library/{image}"
    return f"if it did not find the image, name its registry, too: --image docker.io/{whole}"


def refuse_lone_word(image: str, flags: Sequence[str]) -> None:
    """Refuse a misspelt `--image`, and a word that is no option's value, which the engine would take for the image.

    Raises:
        RequestError: among the engine's `flags` is one.
    """
    options = [word for word in flags if word.startswith("-")]
    if not image and (near := [word for word in options if nearest(word.partition("=")[0], ["--image"])]):
        what, fix = f"container: unknown option '{near[0]}'", "did you mean '--image'?"
        raise RequestError(what, fix=fix, kind="unknown", options=near, meant="--image")
    for before, word in pairwise(["", *flags]):
        if not word.startswith("-") and not before.startswith("-"):
            raise RequestError(
                f"container: '{word}' is neither an option nor the value of one",
                why="the image is an option, and the task follows `--`",
                fix="remove it" if image else f"name the image: --image {shlex.quote(word)}",
                options=[word],
                meant="" if image else f"--image {shlex.quote(word)}",
            )


_VENDORS = {"amd": "AMD", "nvidia": "NVIDIA"}


def _rows() -> list[dict[str, str]]:
    with open(_FILE, "rb") as file:
        rows: list[dict[str, str]] = tomllib.load(file)["image"]
    return rows
