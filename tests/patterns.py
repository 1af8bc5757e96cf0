"""Searches the regular expressions of all packages for those that take more than linear time, with recheck (npm).

    python -m tests.patterns          # `hatch run test --all` runs it; needs npm

`patterns.toml` lists the ones that may: what bounds the length of their text. A pattern is read as its use is: what only
`match` or `fullmatch` uses begins at the start of the text. Possessive repeats are read as greedy ones, which is worse.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RECHECK = "recheck@4.5.0"
MISSING = 3
CHECK = """
const {checkSync} = require('recheck');
for (const [pattern, flags] of JSON.parse(require('fs').readFileSync(0))) {
  let found;
  try { found = checkSync(pattern, flags, {timeout: 10000}); } catch (error) { found = {status: 'unknown'}; }
  console.log(JSON.stringify([found.status, found.complexity ? found.complexity.summary : '']));
}
"""
USES = ("compile", "search", "match", "fullmatch", "sub", "findall", "finditer", "split")


class Pattern(NamedTuple):
    """A regular expression of ours, as JavaScript writes it."""

    where: str
    python: str
    javascript: str
    flags: str


def patterns() -> Iterator[Pattern]:
    """Yield those that are written as literals in a call of `re`."""
    for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            if ast.unparse(node.func.value) != "re" or node.func.attr not in USES:
                continue
            text = _literal(node.args[0])
            if text:
                where = f"{path.relative_to(ROOT / 'packages')}:{node.lineno}"
                begins = node.func.attr in ("match", "fullmatch") or _begins(source, node)
                yield Pattern(where, text, *_javascript(text, ast.unparse(node), begins=begins))


def _literal(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value.decode("latin1") if isinstance(node.value, bytes) else node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "xy" for part in node.values)
    return ""


def _begins(source: str, call: ast.Call) -> bool:
    """Return whether the compiled pattern has a name, and is only used from the start of a text."""
    named = re.search(rf"^\s*(\w+) = {re.escape(ast.get_source_segment(source, call) or '?')}", source, re.M)
    uses = re.findall(rf"\b{named[1]}\.(\w+)\(", source) if named else []
    return bool(uses) and {*uses} <= {"match", "fullmatch"}


def _javascript(text: str, call: str, *, begins: bool) -> tuple[str, str]:
    inline = re.match(r"\(\?([aimsux]+)\)", text)
    flags = inline[1] if inline else ""
    text = text[inline.end() :] if inline else text
    if "x" in flags or "re.VERBOSE" in call or "re.X" in call:
        text = re.sub(r"\s+", "", re.sub(r"(?m)\s+#.*$", "", text))
    flags += "".join(flag.lower() for flag in "IMS" if re.search(rf"re\.{flag}\b", call))
    text = re.sub(r"([*+?}])\+", r"\1", text).replace("(?>", "(?:").replace("(?P<", "(?<")
    text = re.sub(r"\(\?P=(\w+)\)", r"\\k<\1>", text).replace(r"\Z", "$").replace(r"\A", "^").replace("[[", r"[\[")
    return f"^(?:{text})" if begins else text, "".join(sorted({*flags} & {*"ims"}))


def verdicts(found: list[Pattern]) -> list[Any]:
    """Return recheck's answer for each: a status, and how the time grows."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "install", "--silent", "--prefix", folder, RECHECK], check=True, stdout=sys.stderr)
        asked = json.dumps([[one.javascript, one.flags] for one in found])
        done = subprocess.run(
            ["node", "-e", CHECK], cwd=folder, input=asked, text=True, capture_output=True, check=True
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> int:
    """Print what is not linear and not listed; 1: there is some."""
    if not shutil.which("npm"):
        print("npm is not here")
        return MISSING
    listed = {row["pattern"]: row for row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["bounded"]}
    found = list(patterns())
    bad = [(one, how) for one, (status, how) in zip(found, verdicts(found), strict=True) if status == "vulnerable"]
    new = [(one, how) for one, how in bad if one.python not in listed]
    stale = listed.keys() - {one.python for one, _ in bad}
    for one, how in new:
        print(f"{one.where}: {how}: {one.python}")
    for pattern in stale:
        print(f"patterns.toml lists what is linear or gone: {pattern}")
    print(f"{len(found)} patterns, {len(bad)} of them not linear, {len(new)} of these not listed")
    return 1 if new or stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
