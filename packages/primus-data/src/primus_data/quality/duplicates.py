"""Exact and near duplicates: datatrove hashes and compares; of each group, the first document stays.

For each part, `NNNNN.twins` lists what is to go: the document, and part and document of the first one of its group.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_data.quality.stages import buckets

__all__ = ["exact_find", "exact_signatures", "near_buckets", "near_cluster", "near_signatures", "twins"]

_TWIN = np.dtype([("document", "<u4"), ("part", "<u4"), ("first", "<u4")])
_AT_ONCE = 1000
"""Signatures that are read at a time."""


def twins(folder: str, part: int) -> dict[int, tuple[int, int]]:
    """The documents of a part that are to go, each with part and number of the one that stays."""
    path = f"{folder}/{part:05d}.twins"
    found = np.fromfile(path, _TWIN) if os.path.exists(path) else np.empty(0, _TWIN)
    return {int(one["document"]): (int(one["part"]), int(one["first"])) for one in found}


def _write(folder: str, part: int, rows: NDArray[Any], parts: NDArray[Any], firsts: NDArray[Any]) -> None:
    table = np.empty(len(rows), _TWIN)
    table["document"], table["part"], table["first"] = rows, parts, firsts
    table.tofile(f"{folder}/{part:05d}.twins")


def _documents(documents: Iterable[str]) -> Iterator[Any]:
    from datatrove.data import Document

    return (Document(text=text, id="") for text in documents)


def _exact_config() -> Any:
    from datatrove.pipeline.dedup.exact_dedup import ExactDedupConfig

    return ExactDedupConfig(content_getter=lambda document: document.text)


def exact_signatures(documents: Iterable[str], folder: str, part: int) -> None:
    """Hash the documents of a part."""
    from datatrove.pipeline.dedup.exact_dedup import ExactDedupSignature

    ExactDedupSignature(f"{folder}/signatures", _exact_config()).run(_documents(documents), part)


def exact_find(folder: str, parts: int) -> None:
    """Compare the hashes of all parts: datatrove finds the groups, and the first of each, by part and line, stays."""
    from datatrove.pipeline.dedup.exact_dedup import ExactFindDedups

    ExactFindDedups(f"{folder}/signatures", f"{folder}/found", _exact_config(), lines_to_buffer=_AT_ONCE).run()
    groups = _repeated_hashes(folder, parts)
    first_part = np.full(len(groups), -1, "<i8")
    first_row = np.zeros(len(groups), "<i8")
    for part in range(parts):
        signatures = _signatures(folder, part)
        signatures = signatures[np.isin(signatures["hash"], groups)]
        signatures.sort(order=["doc"])
        group = np.searchsorted(groups, signatures["hash"])
        seen, at = np.unique(group, return_index=True)
        new = first_part[seen] < 0
        first_part[seen[new]], first_row[seen[new]] = part, signatures["doc"][at[new]]
        goes = (first_part[group] != part) | (first_row[group] != signatures["doc"])
        _write(folder, part, signatures["doc"][goes], first_part[group[goes]], first_row[group[goes]])


def _signatures(folder: str, part: int) -> NDArray[Any]:
    from datatrove.pipeline.dedup.exact_dedup import get_sig_dtype
    from datatrove.utils.hashing import HashConfig

    path = f"{folder}/signatures/0000/{part:05d}.c4_sig"
    kind = get_sig_dtype(HashConfig())
    return np.fromfile(path, kind) if os.path.exists(path) else np.empty(0, kind)


def _repeated_hashes(folder: str, parts: int) -> NDArray[Any]:
    """The hashes that datatrove found more than once, sorted."""
    found: list[NDArray[Any]] = [np.empty(0, "<u8")]
    for part in range(parts):
        path = f"{folder}/found/00000/{part:05d}.c4_dup"
        if os.path.exists(path):
            signatures = _signatures(folder, part)
            found.append(signatures["hash"][np.isin(signatures["doc"], np.fromfile(path, "<u4"))])
    return np.unique(np.concatenate(found))


def _near_config(values: Mapping[str, Any]) -> Any:
    from datatrove.pipeline.dedup.minhash import MinhashConfig

    count, rows = buckets(values["threshold"], values["hashes"])
    return MinhashConfig(n_grams=values["ngram"], num_buckets=count, hashes_per_bucket=rows, seed=values["seed"])


def near_signatures(documents: Iterable[str], folder: str, part: int, values: Mapping[str, Any]) -> None:
    """Hash the n-grams of the documents of a part."""
    from datatrove.pipeline.dedup.minhash import MinhashDedupSignature

    step = MinhashDedupSignature(f"{folder}/signatures", _near_config(values), values["language"])
    step.run(_documents(documents), part)


def near_buckets(folder: str, bucket: int, values: Mapping[str, Any]) -> None:
    """Compare the signatures of all documents in one bucket."""
    from datatrove.pipeline.dedup.minhash import MinhashDedupBuckets

    config = _near_config(values)
    step = MinhashDedupBuckets(f"{folder}/signatures", f"{folder}/pairs", config=config, lines_to_buffer=_AT_ONCE)
    step.run(rank=bucket, world_size=config.num_buckets)


def near_cluster(folder: str, parts: int, values: Mapping[str, Any]) -> None:
    """Join the pairs of all buckets to groups; the first of each stays: datatrove would keep any."""
    from datatrove.pipeline.dedup.minhash import MinhashDedupCluster

    MinhashDedupCluster(
        f"{folder}/pairs", f"{folder}/groups", _near_config(values), save_cluster_id=True, lines_to_buffer=_AT_ONCE
    ).run()
    first: dict[int, tuple[int, int]] = {}
    for part in range(parts):
        path = f"{folder}/groups/{part:06d}.clusters"
        rows = np.fromfile(path, "<u4").reshape(-1, 2) if os.path.exists(path) else np.empty((0, 2), "<u4")
        kept = [first.setdefault(group, (part, document)) for document, group in rows.tolist()]
        goes = [at for at, document in enumerate(rows[:, 0].tolist()) if kept[at] != (part, document)]
        table = np.array([kept[at] for at in goes], "<u4").reshape(-1, 2)
        _write(folder, part, rows[goes, 0], table[:, 0], table[:, 1])
