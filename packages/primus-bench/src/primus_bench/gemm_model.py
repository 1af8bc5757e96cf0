"""The multiplications of a model: what each matrix of the catalogue is with so many tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from primus_bench.gemm_problem import Problem
from primus_core.errors import RequestError, suggestion
from primus_train.models.architecture import Architecture
from primus_train.models.arithmetic import Matrix, matrices

__all__ = ["problems"]


def problems(
    model: str, names: Sequence[str], tokens: int, dtype: str, files: Sequence[str] = ()
) -> tuple[Problem, ...]:
    """One for each matrix of the model (its name in the catalogue or in `files`, or a path), or for those of `names`.

    Raises:
        RequestError: there is no such model, or it has no such matrix.
    """
    from primus_train.models import catalogue

    found = catalogue.find(model, catalogue.load(files))
    known = {row.name: row for row in matrices(found.facts)}
    _check(names, known, found.name)
    chosen = names or [name for name in known if name != "router"]  # too little work for anybody to mind its speed
    return tuple(_problem(known[name], found.facts, tokens, dtype) for name in dict.fromkeys(chosen))


def _check(names: Sequence[str], known: Iterable[str], model: str) -> None:
    for name in names:
        if name not in known:
            fix = suggestion(name, known) or "leave out --matrix for all of them"
            raise RequestError(f"{model} has no matrix '{name}'", why=f"it has: {', '.join(known)}", fix=fix)


def _problem(row: Matrix, facts: Architecture, tokens: int, dtype: str) -> Problem:
    """Frameworks keep a weight as outputs x inputs: B is transposed. An expert gets its share of the tokens."""
    share = (facts.moe.topk, facts.moe.num_experts) if facts.moe and row.part == "experts" else (1, 1)
    return Problem(max(tokens * share[0] // share[1], 1), row.outputs, row.inputs, dtype, trans_b=True, name=row.name)
