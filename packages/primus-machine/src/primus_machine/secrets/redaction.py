"""What is a secret, and how it is kept out of everything that is shown or saved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from primus_machine.secrets.names import SECRET, is_secret_key, is_secret_name, says_secret
from primus_machine.secrets.rules import rules

__all__ = [
    "is_maskable",
    "is_secret_key",
    "is_secret_name",
    "is_secret_setting",
    "looks_secret",
    "quoted",
    "redact",
    "redact_bytes",
    "redact_text",
    "redact_words",
    "refuse_secrets",
    "secret_values",
    "spelt",
    "without_secrets",
]

# What stands where a secret could, and is none: a switch, a count, a path; `/+f3..` may be the base64 of anything.
_PLAIN = (
    r"(?i:true|false|yes|no|on|off|none|null)|[+-]?(?=.?\d)[\d.,_]{1,15}(?:e[+-]?\d+)?(?:[kKmMbBtT%]|[munµ]?s)?"
    r"|(?:~|\.\.?|/[a-z0-9_.-]{2,})(?:/\S*)?"
)
# `$TOKEN` names one, `<|end|>` and `{}` hold a place.
_REFERENCE = r"\$\w+|<[^<>]*>|\{\w*\}|\{\{.*\}\}|\[\w+\]"


def is_maskable(value: str) -> bool:
    """Whether a secret's value can be replaced wherever it stands: `true` or `/data` would take half a log with it."""
    return len(value) >= 6 and not re.fullmatch(_PLAIN, value)


def looks_secret(value: str) -> bool:
    """Whether a value shows by its shape that it holds a token or a password."""
    return redact(value) != value


def is_secret_setting(key: str, value: str) -> bool:
    """Whether a setting holds a secret, rather than the reference `${NAME}` to one, its file, or a number."""
    if not value or "${" in value:
        return False
    return (says_secret(key) and not re.fullmatch(f"{_PLAIN}|{_REFERENCE}", value)) or looks_secret(value)


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values in `environ` that must not appear anywhere, longest first.

    Of a value with several lines (a private key) each line counts too, since logs are read line by line.
    """
    secrets = [(name, value) for name, value in environ.items() if is_secret_name(name)]
    found = {part for name, value in secrets for part in (value, *value.splitlines(), *_items(name, value))}
    whole = "\n".join(environ.values()).encode("utf-8", "surrogatepass")
    spans = (*rules().keys(whole), *rules().in_lines(whole))
    found |= {whole[start:end].decode("utf-8", "surrogatepass") for start, end in spans}
    return tuple(sorted(spelt(value for value in found if is_maskable(value)), key=len, reverse=True))


def _items(name: str, value: str) -> list[str]:
    """What `API_KEYS=a,b` lists."""
    items = value.split(",") if name.upper().endswith("S") else []
    return items if all(re.fullmatch(r"[\w+/=.~-]+", item) for item in items) else []


def spelt(values: Iterable[str]) -> set[str]:
    """`values`, and each as JSON, Python and URLs write it where that differs."""
    return {form for value in values for form in _forms(value)}


def _forms(value: str) -> set[str]:
    if re.fullmatch(r"[A-Za-z0-9_.~-]*", value):  # most secrets are plain words
        return {value}
    import json
    from urllib.parse import quote, quote_plus

    data = value.encode("utf-8", "surrogateescape")
    written = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    within = {json.dumps(text)[1:-1] for text in written}  # a message that is JSON, in a log that is
    in_url = {quote(data), quote(data, safe=""), quote_plus(data)}
    return {value, repr(value)[1:-1], repr(data)[2:-1], *written, *within, *in_url}


def redact(text: str, values: Iterable[str] = ()) -> str:
    """`text` with known secret `values`, and what shows by its shape that it is one, replaced by `<secret>`."""
    for value in values:
        text = text.replace(value, SECRET)
    data = text.encode("utf-8", "surrogatepass")
    masked = redact_bytes(data)
    return text if masked is data else masked.decode("utf-8", "surrogatepass")


def redact_bytes(text: bytes, values: Iterable[bytes] = ()) -> bytes:
    """The same for the bytes that a program prints; the very `text` where there is nothing to hide."""
    for value in values:
        text = text.replace(value, SECRET.encode())
    return rules().masked(text, SECRET.encode())


# `HF_TOKEN=abc`, `api_key: "abc"`: a name that says so, and a literal value up to the end of its line, word or quotes.
_ASSIGNED = (
    r"""(?<!\w)([A-Za-z_][\w-]*)(["']?\]?[^\S\n]*[:=][^\S\n]*|["'][^\S\n]*,[^\S\n]*(?=["']))"""
    r"""(?:(["'])([^"'\s]{6,})\3|((?!--)[\w+/~.-]{6,}={0,2})(?:(?=["')]*\s*$)|(?=(["'\s;]))))"""
)
_FLAG = r"""(?<![\w-])(--([A-Za-z][\w-]*)(=|[^\S\n]+))(["']?)([^\s"'`;|&()]{6,})\4"""
_USER = r"""(?<![\w-])((?:-u|--user)[^\S\n]*=?["']?[\w.@%+-]+:)([^\s"'$`{}<>:/()][^\s"'$`{}<>()]{5,})"""


def redact_text(text: str, values: Iterable[str] = ()) -> str:
    """`redact` for whole files of code and settings: also a literal that is given to a secret's name or flag."""
    text = re.sub(_ASSIGNED, _without_literal, redact(text, values), flags=re.M)
    text = re.sub(_FLAG, _without_argument, text)
    return re.sub(_USER, _without_password, text)


def _without_literal(match: re.Match[str]) -> str:
    name, between, quote, literal, bare, end = match.groups()
    if literal:
        found = _is_literal_secret(name, literal) and ("," not in between or _has_digit(literal))  # no list of names
    else:  # in the midst of a line, `NAME=value command` is a shell's, and much else is prose
        found = _is_bare_secret(name, bare) and (
            not end or (_has_digit(bare) and (end in "\"'" or (name.isupper() and between == "=")))
        )
    return f"{name}{between}{quote or ''}{SECRET}{quote or ''}" if found else match[0]


def _without_argument(match: re.Match[str]) -> str:
    """`--token abc1`, but not the prose `use --token instead`."""
    before, name, between, quote, value = match.groups()
    is_value = bool(quote) or between == "=" or _has_digit(value)
    placeholder = re.fullmatch(r"[A-Z_]+", value)
    found = is_value and not placeholder and is_secret_key(name) and _is_literal_secret(name, value)
    return f"{before}{quote}{SECRET}{quote}" if found else match[0]


def _without_password(match: re.Match[str]) -> str:
    """The password of `curl -u`, but not `docker run -u jenkins:docker`."""
    is_password = any(c.isdigit() or c.isupper() for c in match[2]) and is_maskable(match[2])
    return f"{match[1]}{SECRET}" if is_password else match[0]


def _has_digit(text: str) -> bool:
    return any(c.isdigit() for c in text)


def _is_literal_secret(name: str, value: str) -> bool:
    """Whether text in quotes is one: no reference (`$TOKEN`, `{token}`), no piece of text (`<|end|>`), no name."""
    if value[0] in "$<{[%" or not is_maskable(value) or (value.isupper() and is_secret_name(value)):
        return False
    # SORT_KEY = "created_at" is ordinary code: of a name that only ends like one, the value must look the part.
    return is_secret_key(name) or (_is_secret_constant(name) and _has_digit(value))


def _is_bare_secret(name: str, value: str) -> bool:
    """Whether a word without quotes is one: an identifier (`tokenizer.decode`, `float32`) is none."""
    if not is_maskable(value):
        return False
    if name.isupper() and "." not in value:
        return is_secret_name(name)
    digits = sum(c.isdigit() for c in value)
    return is_secret_key(name) and digits > (2 if value.replace(".", "_").isidentifier() else 0)


def _is_secret_constant(name: str) -> bool:
    return name.isupper() and is_secret_name(name)


def _settings(words: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Each word as the setting's name, what stands before the value (`--name=`, or nothing), and the value."""
    flag = ""
    for word in words:
        name, before = _named(word)
        if not name and not word.startswith("--"):
            name = flag
        yield name, before, word[len(before) :]
        flag = word[2:] if word.startswith("--") and not before else ""


def _named(word: str) -> tuple[str, str]:
    """The name in `--name=value`, with all before the value; of `--env=NAME=value` the one that says secret."""
    found = ("", "")
    before = ""
    for part in word.split("=")[:-1]:
        before += f"{part}="
        name = part.lstrip("-").rpartition(",")[2]
        if not re.fullmatch(r"[\w.-]+", name):
            break
        if says_secret(name):
            return name, before
        found = found if found[0] else (name, before)
    return found


def redact_words(words: Iterable[str], values: Iterable[str] = ()) -> tuple[str, ...]:
    """A command line, safe to show: also `NAME=value` and `--name value` where NAME is a secret's."""
    return tuple(
        before + SECRET if says_secret(name) and is_secret_setting(name, value) else redact(before + value, values)
        for name, before, value in _settings(words)
    )


def refuse_secrets(words: Iterable[str], fix: str = "", *, is_setting: bool = True) -> None:
    """The rule for the words of every task: everybody on a machine can read them, and they are saved with the run.

    Raises:
        RequestError: a setting among them holds a secret.
    """
    for name, _, value in _settings(words):
        if is_secret_setting(name, value):
            from primus_machine.errors import RequestError

            what = f"'{name}'" if name else "an argument"
            # A reference stays one where the variable's name says that it holds a secret.
            last = re.sub(r"\W", "_", name.rpartition(".")[2]).upper()
            variable = "HF_TOKEN" if last.startswith("HF_") else last if is_secret_name(last) else f"{last}_TOKEN"
            setting = f"; where {name} is a setting of `train`: {name}='${{{variable}}}'" if name and is_setting else ""
            raise RequestError(
                f"{what} contains a secret, which everybody on this machine could read on the command line",
                fix=fix or f"export it as {variable.strip('_')} for the task to read{setting}",
            )


def quoted(value: Any, key: str = "") -> str:
    """What an error about a config's `key` may quote of its value."""
    return repr(without_secrets(value, key))


def without_secrets(value: Any, key: str) -> Any:
    """A config's value as it may be shown: `key` may say that it is secret, and so may what it looks like."""
    if isinstance(value, Mapping):
        return {name: without_secrets(below, str(name)) for name, below in value.items()}
    if isinstance(value, list):
        return [without_secrets(item, key) for item in value]
    if key and value and not isinstance(value, bool) and (is_secret_key(key) or is_secret_name(key)):
        return SECRET
    return redact_text(redact_words((value,))[0]) if isinstance(value, str) else value
