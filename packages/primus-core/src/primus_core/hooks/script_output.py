"""What hook scripts and patches print: the lines `env.NAME=VALUE`, `extra.name=value` and `launch.skip=REASON`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from primus_core.environment.flag_lists import FLAG_LISTS
from primus_core.environment.resolve import refused
from primus_core.plan.plan import Variable
from primus_machine.errors import PrimusError
from primus_machine.secrets.redaction import is_maskable, is_secret_name, is_secret_setting, looks_secret

__all__ = ["Malformed", "ScriptOutput", "naming", "parse_line", "secrets_in"]

_ENV = r"env\.([A-Za-z_][A-Za-z0-9_]*)=(.*)"
_SKIP = "launch.skip="
_EXTRA = r"extra\.([A-Za-z0-9_][A-Za-z0-9_.-]*)=(.*)"


class ScriptOutput(NamedTuple):
    """What scripts printed, in their order: variables, words for the task, and why there is nothing to launch."""

    environment: tuple[Variable, ...] = ()
    words: tuple[str, ...] = ()
    skip: str = ""

    def and_then(self, other: ScriptOutput) -> ScriptOutput:
        """Both; for a variable that is set twice, the later value; for a list of flags, both."""
        both = enumerate((*self.environment, *other.environment))
        latest = {(v.name, number if v.name in FLAG_LISTS else 0): v for number, v in both}
        return ScriptOutput(tuple(latest.values()), self.words + other.words, self.skip or other.skip)


@contextmanager
def naming(words_of: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Attribute errors in words that scripts added to the script, not to the command line; by the step's name."""
    try:
        yield
    except PrimusError as error:
        latest = {
            f"command line: {flag} {value}": f"{step}: extra.{flag.removeprefix('--')}={value}"
            for step, words in words_of.items()
            for flag, value in zip(words[::2], words[1::2], strict=True)
        }

        def quoted(text: str) -> str:
            for typed, line in latest.items():
                text = text.replace(typed, line)
            return text

        error.retold(quoted)
        raise


class Malformed(NamedTuple):
    """A line that begins as the protocol's do, and is none of them."""

    text: str
    why: str


def parse_line(line: str, script: str) -> ScriptOutput | Malformed | None:
    """What one line of a script's stdout says; None: it is only text."""
    line = line.rstrip("\r\n")
    if re.match(r"launch\.[a-z_]+=", line):
        skip = line.removeprefix(_SKIP).strip() or "no reason given"
        return ScriptOutput(skip=skip) if line.startswith(_SKIP) else Malformed(line, f"known: {_SKIP}REASON")
    if not line.startswith(("env.", "extra.")):
        return None
    if "\0" in line:
        return Malformed(line, "neither a variable nor an argument can carry a NUL character")
    if match := re.fullmatch(_ENV, line, re.S):
        return _variable(line, match[1], match[2], script)
    if match := re.fullmatch(_EXTRA, line, re.S):
        return _argument(line, match[1], match[2])
    form = {"env": "env.NAME=VALUE", "extra": "extra.name=value"}[line.partition(".")[0]]
    return Malformed(line, f"the form is {form}, without spaces in the name")


def _variable(line: str, name: str, value: str, script: str) -> ScriptOutput | Malformed:
    if why := refused(name):
        return Malformed(line, f"{name} cannot be set: {why}")
    secret = is_secret_name(name) or looks_secret(value)
    return ScriptOutput(
        (Variable(name, value, f"hook {os.path.basename(script)}", f"printed by {script}", secret=secret),)
    )


def _argument(line: str, name: str, value: str) -> ScriptOutput | Malformed:
    if is_secret_setting(name, value):
        return Malformed(
            line, "it contains a secret, and everybody on this machine can read arguments: print env.NAME=VALUE instead"
        )
    return ScriptOutput(words=(f"--{name}", value))


def secrets_in(line: str) -> tuple[str, ...]:
    """The secret that a script's line says, well-formed or not; the line, where the value would mask too much."""
    kind, _, rest = line.strip().partition(".")
    name, _, value = rest.partition("=")
    name, value = name.strip(), value.strip()
    if kind not in ("env", "extra") or not value:
        return ()
    secret = looks_secret(value) or is_secret_setting(name, value) or (kind == "env" and is_secret_name(name))
    return ((value if is_maskable(value) else line),) if secret else ()
