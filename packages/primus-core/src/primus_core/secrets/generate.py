"""Translates gitleaks' rules for secrets into `data/secrets/gitleaks.json`, which `secret_rules` reads.

    python -m primus_core.secrets.generate gitleaks.toml COMMIT > data/secrets/gitleaks.json

The input is `config/gitleaks.toml` of https://github.com/gitleaks/gitleaks (MIT, see `data/secrets/LICENSE-gitleaks`).
Its expressions are Go's: this writes them for Python. The output names the rules that are left out, and why.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from typing import Any

__all__ = ["main", "translated"]

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
_END = r"(?![\w-])"


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


def main(argv: list[str]) -> int:
    """Print the rules of the file `argv[0]`, of gitleaks' commit `argv[1]`."""
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
