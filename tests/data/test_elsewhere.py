"""What a plan requires is named so that a replay finds it from any folder."""

from __future__ import annotations

import os

import pytest

from primus_core.request.arguments import Parser
from primus_data import actions

PREPARE = "prepare --input a.jsonl more/*.jsonl --output-prefix x"


@pytest.mark.parametrize(
    "words",
    [
        f"{PREPARE} --tokenizer-model tokenizer.json",
        f"{PREPARE} --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt",
        "inspect x --tokenizer-model tokenizer.json",
        "verify x --tokenizer-model tokenizer.json",
        "merge --input x y --output-prefix z",
        "split x --shares 9,1 --output-prefix z",
        "blend --file blend.yaml --output z.txt",
        "fetch --input a.jsonl --output-dir x",
        "fetch --dataset ./a --output-dir x",
    ],
)
def test_files_and_folders_are_required_by_whole_paths(words: str) -> None:
    parser = Parser()
    actions.add_actions(parser)
    args = parser.parse_args(words.split())
    needs = actions.find(args.action).check(args, "/elsewhere")
    paths = [one.name for one in needs if one.kind in ("file", "folder")]
    assert paths
    assert [path for path in paths if not os.path.isabs(path)] == []
    assert all(path.startswith("/elsewhere") for path in paths)
