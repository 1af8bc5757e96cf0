"""What a backend tells `verify` about its framework. Entry-point group `primus.verifiers`: an instance, by framework.

All of it is pure and imports no framework. A backend does not import this module: it has an object of this shape.
An object may also have `by_micro_batch(experiment)`, which returns why micro-batches of another size train another
model; empty: they do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from primus_train.kit.alike import BATCH

if TYPE_CHECKING:
    from primus_train.kit.known_difference import KnownDifference
    from primus_train.models.architecture import Architecture

__all__ = ["GROUP", "Kind", "Verifier"]

GROUP = "primus.verifiers"
Kind = Literal["weight", "first moment", "second moment"]
Array = TypeVar("Array")


class Verifier(Protocol):
    """How an experiment of one framework becomes small trainings that can be compared."""

    layouts: tuple[str, ...]
    """What `--layouts auto` tries, such as `tp=2,pp=2`, in this order."""
    rank_axes: tuple[str, ...]
    """The axes whose degrees multiply to the number of ranks."""
    imports: tuple[str, ...]
    """Packages that take long to import, which trials on a CPU import once: others than the framework, which may be
    patched before it is imported, and none that starts threads or devices then.
    """
    known_differences: tuple[KnownDifference, ...]
    """Layouts that the framework is known to compute otherwise."""
    format: Literal["torch", "orbax"]
    """How checkpoints are stored: by torch.distributed.checkpoint, or by Orbax."""

    def packages(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the Python packages, or folders of them, that decide what an experiment computes.

        A result is known as long as their files stay the same.
        """

    def experiment(
        self, settings: Mapping[str, Any], *, shrink: bool, layouts: Sequence[Mapping[str, int]], device: str
    ) -> dict[str, Any]:
        """Return the settings of an experiment as trials on `device` have them; with `shrink`, of a small model.

        `settings` are resolved, with `model` and `data` as sections. A trial trains on made-up tokens in float32 with
        Adam, a constant learning rate, no dropout and no clipping, saves every step, and has no layout. The degrees of
        `layouts` divide the layers, heads and experts of the small model as they divide those of the experiment.
        """

    def own(self, settings: Mapping[str, Any]) -> dict[str, int]:
        """Return the degrees of the experiment's own layout: `{"tp": 8}`."""

    def unexpressed(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """Return what else belongs to that layout, as `name=value`, and why trials do not have it."""

    def batch(self, layouts: Sequence[Mapping[str, int]]) -> int:
        """Return how many sequences a step of all trials has: `layouts` divide them, if they are not too many.

        `experiment` has it as its batch, where that is a setting.
        """

    def settings(self, layout: Mapping[str, int], batch: int = BATCH) -> dict[str, Any]:
        """Return the settings, by dotted names, that make a layout of `batch` sequences in a step.

        Raises `ValueError` for an unknown axis, and for a layout that does not divide the batch.
        """

    def steps(self, count: int, *, rate: float) -> dict[str, Any]:
        """Return the settings to train `count` steps with a constant learning rate."""

    def seed(self, number: int) -> dict[str, Any]:
        """Return the settings of another seed, for weights and tokens."""

    def start(self, checkpoint: str) -> dict[str, Any]:
        """Return the settings to begin with the weights, and nothing else, of a checkpoint."""

    def checkpoint(self, run: str, step: int) -> str:
        """Return the path of the checkpoint of a step in a run directory."""

    def same_tokens(self, length: int) -> dict[str, Any]:
        """Return the settings to train on the section `data`, in sequences of `length` tokens; None: it is not set."""

    def neutral(self, name: str, weight: Array, model: Architecture) -> Iterator[tuple[str, Array, float]]:
        """Return a weight as the neutral ones that it holds: the name, the array, and what to multiply it by.

        Neutral are Hugging Face's names and layouts of Llama and Qwen 3, such as `layers.0.self_attn.q_proj.weight`,
        with rows for outputs. Only indexing, reshaping and joining is done to the array. Nothing is returned for what
        is zero at the start and moved by a rule, as a router's bias. Raises `KeyError` for a weight without a name.
        """

    def tensors(self, stored: Mapping[str, Array]) -> Iterator[tuple[Kind, str, Array]]:
        """Return what a checkpoint stores as one weight or moment a layer and expert, with its name.

        Layers and experts have names such as `layers.3.` and `experts.1.`. An array can be indexed along its first
        axis. The first moment of Adam after step 1 is the gradient, times 1 - beta1.
        """
