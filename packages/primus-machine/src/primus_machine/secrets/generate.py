"""Generates the rules for secrets: first those of gitleaks for Python, then the one file that `rules` reads.

    python -m primus_machine.secrets.generate gitleaks.toml COMMIT > data/secrets/gitleaks.json
    python -m primus_machine.secrets.generate > data/secrets/rules.json

The first input is `config/gitleaks.toml` of https://github.com/gitleaks/gitleaks (MIT; `LICENSE-gitleaks`).
Its expressions are Go's: this writes them for Python. The output names the rules that are left out, and why.
The second command joins `own.toml` and `gitleaks.json`: reading TOML would cost each dry run 3 % of its time.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from typing import Any

__all__ = ["joined", "main", "translated"]

_OWN = "own rules and names find the same"
_LEFT_OUT = {
    "aws-amazon-bedrock-api-key-short-lived": "it finds only the beginning of the key; an own rule finds all of it",
    "curl-auth-header": _OWN,
    "curl-auth-user": _OWN,
    "generic-api-key": _OWN,
    "jwt": _OWN,
    "linear-client-secret": "'linear' is a layer of most models, and 32 hexadecimal digits are its checksum",
    "pkcs12-file": "it is about a file's name; the snapshot leaves such files out",
    "private-key": _OWN,
    "sidekiq-sensitive-url": _OWN,
    "sidekiq-secret": "the value is shorter than what is looked at",
    "slack-webhook-url": _OWN,
    "microsoft-teams-webhook": _OWN,
    "sourcegraph-access-token": "it takes every commit of git for a token; an own rule finds those with a prefix",
}
# What every rule that needs a vendor's name beside the value begins with. Without it, the same values are found.
_ANY_NAME = r"[\w.-]{0,50}?"
# ... and what most end with: it would miss a value before a comma, a bracket, or an ampersand.
_ENDS = (r"""(?:[\x60'"\s;]|\\[nr]|$)""", r"""(?:[\x60'"\s;]|\\[nr]|$|\b)""")
_VENDOR = r"[ \t\w.-]{0,20}"
"""In a pattern that needs the vendor's name beside the secret."""
_PREFIX = 4
_OF_PREFIXES = ("github-app-token", "openai-api-key", "stripe-access-token")
"""Rules of several prefixes."""
_END = r"(?![\w-])"
_BEGIN = r"(?:\b|(?<=[\d;\[]m)|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u00[0-9A-Fa-f]{2}))"
"""Where a word begins for a person: also behind a colour, and behind a character as JSON, Python or a URL writes it."""


def translated(rule: dict[str, Any]) -> dict[str, Any]:
    """One rule for Python: the first group that matches is the secret."""
    pattern = rule["regex"]
    pattern = pattern.replace(_ANY_NAME, "")
    pattern = re.sub(r"\(\?P<\w+>", "(?:", pattern).replace("[[:alnum:]]", "[A-Za-z0-9]").replace(r"\z", r"\Z")
    for end in reversed(_ENDS):
        pattern = pattern.replace(end, _END)
    pattern = _flags_in_groups(pattern)
    re.compile(pattern.encode())
    found = {"id": rule["id"], "keywords": sorted(rule["keywords"]), "pattern": pattern}
    if "secretGroup" in rule:
        found["group"] = rule["secretGroup"]
    if "entropy" in rule:
        found["entropy"] = rule["entropy"]
    return {**found, "digit": False} if "[a-z]{34}" in pattern else found


def _flags_in_groups(pattern: str) -> str:
    """`a(?i)b` of Go is `a(?i:b)`: the flag counts to the end of the group around it."""
    while found := re.search(r"(?<!\\)\(\?i\)", pattern):
        depth, end = 0, len(pattern)
        for index in range(found.end(), len(pattern)):
            escaped = _is_escaped(pattern, index)
            depth += (pattern[index] == "(" and not escaped) - (pattern[index] == ")" and not escaped)
            if depth < 0:
                end = index
                break
        pattern = f"{pattern[: found.start()]}(?i:{pattern[found.end() : end]}){pattern[end:]}"
    return pattern


def _is_escaped(pattern: str, index: int) -> bool:
    before = pattern[:index]
    odd = (len(before) - len(before.rstrip("\\"))) % 2 == 1
    opened, closed = before.rfind("["), before.rfind("]")
    return odd or opened > closed  # in a set, parentheses are letters


def joined() -> str:
    """The text of `rules.json`: our own rules, with their parts put in, then those of gitleaks; one a line."""
    folder = f"{os.path.dirname(os.path.dirname(__file__))}/data/secrets"
    with open(f"{folder}/own.toml", "rb") as own, open(f"{folder}/gitleaks.json", "rb") as gitleaks:
        data = tomllib.load(own)
        others = [_without_digit(row) for row in json.load(gitleaks)["rules"]]
        rows = [*(_with_parts(row, data["parts"]) for row in data["rules"]), *others]
    return "[\n{}\n]\n".format(",\n".join(json.dumps(_behind_colours(row)) for row in rows))


def _behind_colours(row: dict[str, Any]) -> dict[str, Any]:
    """`row`, whose pattern begins where a word does for a person."""
    return {**row, "pattern": re.sub(r"^((?:\(\?\w+\)|\(\?\w*:|\()*)\\b", lambda at: at[1] + _BEGIN, row["pattern"])}


def _without_digit(row: dict[str, Any]) -> dict[str, Any]:
    """`row`, of which a secret needs no digit if its pattern begins with letters that are always the same."""
    begins = re.match(r"(?:\\b|\((?:\?i?:)?)*((?:[\w~-]|\\\.)*)", row["pattern"])
    is_fixed = begins is not None and len(begins[1]) >= _PREFIX and _VENDOR not in row["pattern"]
    return {**row, "digit": False} if is_fixed or row["id"] in _OF_PREFIXES else row


def _with_parts(row: dict[str, Any], parts: dict[str, str]) -> dict[str, Any]:
    """`row` with each `@NAME@` of its patterns replaced by that part, which may name another."""
    row = dict(row)
    for field in ("pattern", "head"):
        while found := re.search(r"@([A-Z]+)@", row.get(field, "")):
            row[field] = row[field].replace(found[0], parts[found[1]])
    return row


def main(argv: list[str]) -> int:
    """Print the rules of the file `argv[0]`, of gitleaks' commit `argv[1]`; without arguments all rules."""
    if not argv:
        sys.stdout.write(joined())
        return 0
    with open(argv[0], "rb") as file:
        rules = tomllib.load(file)["rules"]
    left_out = dict(_LEFT_OUT)
    left_out |= {rule["id"]: "it is for files of certain names" for rule in rules if "path" in rule and "regex" in rule}
    kept = [translated(rule) for rule in rules if rule["id"] not in left_out]
    lines = ",\n".join(f"  {json.dumps(rule)}" for rule in kept)
    head = {"source": "https://github.com/gitleaks/gitleaks", "commit": argv[1], "licence": "MIT, see LICENSE-gitleaks"}
    why = json.dumps(left_out, indent=2)
    sys.stdout.write(f'{{\n "origin": {json.dumps(head)},\n "left_out": {why},\n "rules": [\n{lines}\n ]\n}}\n')
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
