"""Megatron's `tools/preprocess_data.py` without Megatron, whose imports alone take 9 s: the peer of `data prepare`.

python preprocess_alone.py TOKENIZER.json INPUT.jsonl PREFIX WORKERS

A pool of workers encodes one document at a time with Hugging Face's fast tokenizer, and sends the ids as a list to this
process, which writes them. Megatron calls the tokenizer through transformers, which is about a tenth slower than this.
"""

from __future__ import annotations

import json
import multiprocessing
import struct
import sys
from typing import Any

import numpy as np
from tokenizers import Tokenizer

_EOD = "<|endoftext|>"


class Encoder:
    """As in the tool: the class holds the tokenizer of its process."""

    tokenizer: Any
    eod: int

    def __init__(self, model: str) -> None:
        self.model = model

    def initializer(self) -> None:
        """In a worker, once."""
        Encoder.tokenizer = Tokenizer.from_file(self.model)
        Encoder.eod = Encoder.tokenizer.token_to_id(_EOD)

    def encode(self, json_line: str) -> tuple[dict[str, list[int]], dict[str, list[int]], int]:
        """In a worker, a document."""
        data = json.loads(json_line)
        ids, lens = {}, {}
        for key in ["text"]:
            doc_ids: list[int] = []
            sentence_lens = []
            for sentence in [data[key]]:
                sentence_ids = Encoder.tokenizer.encode(sentence).ids
                if len(sentence_ids) > 0:
                    doc_ids.extend(sentence_ids)
                    sentence_lens.append(len(sentence_ids))
            if len(doc_ids) > 0:
                doc_ids.append(Encoder.eod)
                sentence_lens[-1] += 1
            ids[key], lens[key] = doc_ids, sentence_lens
        return ids, lens, len(json_line)


def main(model: str, source: str, prefix: str, workers: str) -> None:
    """`process_json_file`, and `IndexedDatasetBuilder` for ids of 16 bits."""
    lengths: list[int] = []
    bounds = [0]
    pool = multiprocessing.Pool(int(workers), initializer=(encoder := Encoder(model)).initializer)
    with open(source, encoding="utf-8") as fin, open(f"{prefix}_text_document.bin", "wb") as output:
        for doc, sentence_lens, _ in pool.imap(encoder.encode, fin, 32):
            output.write(np.array(doc["text"], dtype=np.uint16).tobytes(order="C"))
            lengths.extend(sentence_lens["text"])
            bounds.append(len(lengths))
    pool.close()
    pool.join()
    sizes = np.array(lengths, dtype=np.int32)
    offsets = np.concatenate(([0], np.cumsum(sizes[:-1], dtype=np.int64) * 2)).astype(np.int64)
    with open(f"{prefix}_text_document.idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(lengths), len(bounds)))
        index.write(sizes.tobytes() + offsets.tobytes() + np.array(bounds, dtype=np.int64).tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
