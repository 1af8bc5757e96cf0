"""Megatron's `tools/preprocess_data.py`, with megatron-core's own tokenizers and builder, and without its command line.

python preprocess_data.py PREFIX INPUT WORKERS '{"tokenizer_type": "Llama2Tokenizer", "tokenizer_model": "x.model"}' ...

Each object of settings writes `PREFIX<number>_text_document`. 0 workers: in this process.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from argparse import Namespace
from collections.abc import Iterable
from typing import Any

from megatron.core.datasets import indexed_dataset
from megatron.core.tokenizers.utils.build_tokenizer import build_tokenizer

DEFAULTS = {
    "special_tokens": None, "metadata_path": None, "pad_vocab_size": False, "chat_template": None, "vocab_size": None,
    "vocab_file": None, "merge_file": None, "trust_remote_code": False, "tokenizer_model": None,
    "tokenizer_hf_no_use_fast": False, "tokenizer_hf_no_include_special_tokens": False,
    "tokenizer_sentencepiece_legacy": False, "tokenizer_sentencepiece_ignore_extra_whitespaces": True,
    "tiktoken_pattern": None, "tiktoken_num_special_tokens": 1000, "null_tokenizer_eod_id": None,
}  # fmt: skip
"""Of Megatron's command line (`TokenizerConfig`)."""


class Encoder:
    """As in Megatron's tool, for one key and without sentences."""

    tokenizer: Any

    def __init__(self, args: Namespace) -> None:
        self.args = args

    def initializer(self) -> None:
        Encoder.tokenizer = build_tokenizer(self.args)

    def encode(self, json_line: str) -> tuple[list[int], list[int]]:
        text = json.loads(json_line)["text"]
        doc_ids: list[int] = []
        sentence_lens: list[int] = []
        for sentence in [text]:
            sentence_ids = Encoder.tokenizer.tokenize(sentence)
            if len(sentence_ids) > 0:
                doc_ids.extend(sentence_ids)
                sentence_lens.append(len(sentence_ids))
        if len(doc_ids) > 0 and self.args.append_eod:
            doc_ids.append(Encoder.tokenizer.eod)
            sentence_lens[-1] += 1
        return doc_ids, sentence_lens


def write(prefix: str, source: str, workers: int, args: Namespace) -> None:
    """`process_json_file` of Megatron's tool."""
    encoder = Encoder(args)
    tokenizer = build_tokenizer(args)
    kind = indexed_dataset.DType.optimal_dtype(tokenizer.vocab_size)
    builder = indexed_dataset.IndexedDatasetBuilder(f"{prefix}_text_document.bin", dtype=kind)
    with open(source, encoding="utf-8") as lines:
        for ids, lengths in _encoded(encoder, lines, workers):
            builder.add_document(ids, lengths)
    builder.finalize(f"{prefix}_text_document.idx")


def _encoded(encoder: Encoder, lines: Iterable[str], workers: int) -> Iterable[tuple[list[int], list[int]]]:
    if not workers:
        encoder.initializer()
        return map(encoder.encode, lines)
    pool = multiprocessing.Pool(workers, initializer=encoder.initializer)  # ends with this program
    return pool.imap(encoder.encode, lines, 32)


def main(prefix: str, source: str, workers: str, *settings: str) -> None:
    """Write one after the other."""
    for number, one in enumerate(settings):
        given = {**DEFAULTS, "append_eod": True, **json.loads(one)}
        write(f"{prefix}{number}", source, int(workers), Namespace(**given))


if __name__ == "__main__":
    main(*sys.argv[1:])
