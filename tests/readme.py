"""README.md as data: the commands that a person types, and the captures of what follows. Runs with a bare Python.

bash -c "$(python3 tests/readme.py first)"    # the first command, and lines of the table in the same shell
bash -c "$(python3 tests/readme.py test)"     # all tests
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

TEXT = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
FIRST, TESTS = "examples/quickstart.yaml", "hatch run test"
# What a line of the table may need that a bare machine does not have, or the reader's own words.
NEEDS = (
    *(
        " IMAGE ",
        "train.py",
        "<",
        "primus slurm",
        "primus container",
        "maxtext",
        "megatron",
        "-- train pretrain",
        "corpus",
        "tokens_text",
        "exp.yaml",
    ),
    "-- preflight",  # a GPU: without one, its answer is that it is not known (exit code 3)
    "-M 8192",  # a GPU: without instructions for bf16, a CPU takes half an hour for each product
)
VARIES = (
    (r"--config .* exp_name", "--config FILE exp_name"),  # with the settings of a test
    (r"(completed in) .*", r"\1 TIME"),
    (r"on node 0 \(\S+\)", "on node 0 (HOST)"),
    (r"\d[\d,.:_]*(e[+-]?\d+)?", "N"),
)


def line_ending(end: str) -> str:
    """The one command of the README that ends so."""
    (found,) = re.findall(rf"^ {{4}}(\S.*{re.escape(end)})$", TEXT, re.M)
    return str(found)


def first_command() -> str:
    """What a person types first."""
    return next(line.strip() for line in TEXT.splitlines() if line.startswith("    ") and line.endswith(FIRST))


def table() -> list[str]:
    """The commands of the table that work as printed on a bare machine, behind the first command."""
    found = re.findall(r"^\| [^|]* \| `([^`]+)`", TEXT, re.M)
    return [line for line in found if "--dry-run" in line or not any(need in line for need in NEEDS)]


def capture(command: str) -> list[str]:
    """The lines that the README shows behind `$ command`."""
    block = re.search(rf"^ {{4}}\$ {re.escape(command)}.*\n((?: {{4}}.*\n|\n)+?)(?=^\S|^ {{4}}\$)", TEXT, re.M)
    assert block, command
    return [line.removeprefix("    ") for line in block[1].splitlines() if line.strip()]


def differences(shown: Iterable[str], real: str) -> list[str]:
    """The lines shown that are not among the real ones, in that order. `...` stands for what was left out."""
    rest, missing = [_shape(line) for line in real.splitlines()], []
    for line in shown:
        wanted, cut, _ = _shape(line).partition("...")
        at = next((i for i, one in enumerate(rest) if one == wanted or (cut and one.startswith(wanted))), -1)
        missing += [line] if at < 0 and wanted else []
        rest = rest[at + 1 :]
    return missing


def _shape(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, replacement in VARIES:
        line = re.sub(pattern, replacement, line)
    return line.rstrip()


if __name__ == "__main__":
    sys.stdout.write("\n".join([first_command(), *table()] if sys.argv[1:] == ["first"] else [line_ending(TESTS)]))
