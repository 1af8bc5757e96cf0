"""A corpus of clean prose in which everything is planted that a quality pipeline should find."""

from __future__ import annotations

import gzip
import json
import random
from functools import partial
from pathlib import Path


def _words(text: str) -> list[str]:
    return text.split()


NOUNS = _words(
    "bridge letter clock garden radio boat stone apple road harbour valley station forest lake arch hill market teacher "
    "sailor doctor farmer pilot winter window river kitchen basket engine school theatre mountain island bottle candle "
    "village journey ladder mirror painter newspaper orchard pencil quarry railway shelter tunnel umbrella violin wagon"
)
ADJECTIVES = _words(
    "wooden long unusual broken blue heavy ripe northern quiet frozen windy old young patient curious narrow bright "
    "distant gentle honest modern noisy plain rapid silent steep tall warm wide yellow"
)
VERBS = _words(
    "repaired described painted measured borrowed discovered carried remembered explained collected crossed followed "
    "noticed opened reached visited sketched wanted finished"
)

GERMAN = (
    "Der alte Fischer ging jeden Morgen an den Strand und suchte nach Holz, das die Wellen in der Nacht gebracht hatten. "
    "Seine Frau wartete in der Küche auf ihn und kochte Kaffee, während draußen der Wind um das kleine Haus strich. "
) * 3
QUESTION = {
    "question": "A baker sells seventeen loaves of dark bread every morning and nine sweet rolls every evening; how many pieces are sold within four days?",
    "answer": "one hundred and four",
}
ESCAPE = "\x1b]0;owned\x07\x1b[31m"


def prose(seed: int, sentences: int = 12) -> str:
    """Text that no step objects to; another one for each seed."""
    chosen = random.Random(seed)
    lines = []
    for _ in range(sentences):
        noun, adjective, verb = (partial(chosen.choice, words) for words in (NOUNS, ADJECTIVES, VERBS))
        lines.append(
            f"The {adjective()} {noun()} {verb()} a {noun()} and {verb()} the {adjective()} {noun()} of that {noun()}, "
            f"with {adjective()} {noun()} to {noun()} that have {verb()} some {adjective()} {noun()}."
        )
    return " ".join(lines[: sentences // 2]) + "\n" + " ".join(lines[sentences // 2 :])


def nearly(seed: int) -> str:
    """The same text with another end."""
    return prose(seed).rsplit(",", 1)[0] + ", as everybody in the town knows."


PLANTED: dict[str, str] = {
    "foreign": GERMAN,
    "short": "This note is much too short, and nobody would want to learn anything of that.",
    "hostile": f"{ESCAPE} tiny",
    "repeated": "Buy the best of all watches with us today.\n" * 40,
    "exact": prose(1),
    "near": nearly(2),
    "contaminated": f"{prose(900, 8)} {QUESTION['question']} {prose(901, 8)}",
    "mail": f"{prose(902)} Write to jane.doe@corp.example.net, or call +49 30 901820, or use 8.8.8.8 and 10.0.0.1.",
}
"""What is planted, by kind."""


def documents() -> list[list[dict[str, str]]]:
    """The documents of three files: 0 to 59 are clean, and the planted ones stand in the second and third file."""
    clean = [{"id": f"clean-{seed}", "text": prose(seed)} for seed in range(60)]
    planted = [{"id": kind, "text": text} for kind, text in PLANTED.items()]
    return [clean[:20], [*clean[20:40], *planted[:4]], [*planted[4:], *clean[40:]]]


def write(folder: Path) -> None:
    """Three files, one compressed, and an evaluation set."""
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(documents()):
        data = "".join(f"{json.dumps(document)}\n" for document in part).encode()
        (folder / f"{number}.jsonl{'.gz' * (number == 1)}").write_bytes(gzip.compress(data) if number == 1 else data)
    (folder / "gsm.eval").write_text(
        f"{json.dumps(QUESTION)}\n{json.dumps({'question': 'short?'})}\n", encoding="utf-8"
    )


PIPELINE = """\
input: shards/*.jsonl*
output: clean
samples: 3
steps:
  - language: [en]
  - gopher_quality
  - gopher_repetition
  - fineweb_quality
  - c4_quality
  - exact_dedup
  - near_dedup: 0.8
  - pii
  - decontaminate: {against: [shards/gsm.eval], ngram: 13}
"""
