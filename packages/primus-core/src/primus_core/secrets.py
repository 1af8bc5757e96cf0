"""What is a secret, and how it is kept out of everything that is shown or saved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from primus_core.plan import SECRET, Plan

__all__ = [
    "is_secret_key",
    "is_secret_name",
    "is_secret_setting",
    "looks_secret",
    "redact",
    "redact_text",
    "redact_words",
    "secret_values",
    "spelt",
    "values_in",
]

_WORDS = frozenset({"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY"})
# Words around TOKEN that make it a piece of text, not a secret: `eos_token`, `flops_per_token`.
_TEXT_TOKENS = frozenset({"EOS", "BOS", "PAD", "UNK", "MASK", "SEP", "CLS", "STOP", "START", "END", "IMAGE", "PER"})
_ENDINGS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "APIKEY")  # PGPASSWORD
# A value may be a secret by its shape: Hugging Face, GitHub, GitLab, OpenAI/Anthropic, Slack, AWS, JWT.
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{20,}"
    r"|xox[abposr]-[\w-]{10,}|AKIA[A-Z0-9]{16}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,})"
)
MAY_HIDE_SECRET = re.compile(rb"://|hf_|gh[opsur]_|github_pat_|glpat-|sk-|xox|AKIA|eyJ")
"""Found in every text that `redact` could change without knowing a value: a cheap look before it."""
_IN_URL = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")


def is_secret_name(name: str) -> bool:
    """Whether an environment variable's name says that its value is a secret (`HF_TOKEN`, `WANDB_API_KEY`)."""
    words = name.upper().split("_")
    last = words[-1]
    return bool(_WORDS & set(words)) or last == "KEY" or last.endswith(_ENDINGS) or words[1:][-1:] == ["PWD"]


def is_secret_key(name: str) -> bool:
    """The same for a key of a config: `api_key` and `hf_token`, but not `text_key`, `token_dispatcher`, `eos_token`."""
    words = re.split(r"[_.\-]", name.upper())
    found = set(words)
    if words[-1] == "TOKEN":
        return not _TEXT_TOKENS & found
    return bool((_WORDS - {"TOKEN"}) & found) or (
        words[-1] == "KEY" and bool({"API", "ACCESS", "PRIVATE", "AUTH"} & found)
    )


def looks_secret(value: str) -> bool:
    """Whether a value has the shape of a well-known kind of token, or a URL with a password in it."""
    return bool(_SHAPES.search(value) or _IN_URL.search(value))


def is_secret_setting(key: str, value: str) -> bool:
    """Whether a setting holds a secret, rather than the reference `${NAME}` to one."""
    return bool(value) and "${" not in value and (is_secret_key(key) or looks_secret(value))


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values in `environ` that must not appear anywhere, longest first. Under six characters masks too much.

    Of a value with several lines (a private key) each line counts too, since logs are read line by line.
    """
    secrets = [value for name, value in environ.items() if is_secret_name(name)]
    found = {part for value in secrets for part in (value, *value.splitlines())}
    found |= {match[2] for value in environ.values() for match in _IN_URL.finditer(value)}
    return tuple(sorted(spelt(value for value in found if len(value) >= 6), key=len, reverse=True))


def spelt(values: Iterable[str]) -> set[str]:
    """`values`, and each as JSON and Python's `repr` write it where that differs."""
    found = set(values)
    for value in tuple(found):
        if not (value.isascii() and value.isprintable()) or {"\\", '"', "'"} & set(value):
            import json  # most secrets are plain words

            found |= {repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    return found


def values_in(plan: Plan, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values that must not appear anywhere when `plan` is shown, saved or run in `environ`."""
    own = {variable.name: variable.value for variable in plan.environment}
    marked = {f"{index}_SECRET": v.value for index, v in enumerate(plan.environment) if v.secret}
    return secret_values({**environ, **own, **marked})


def redact(text: str, values: Iterable[str] = ()) -> str:
    """`text` with known secret `values`, token shapes and passwords in URLs replaced by `<secret>`."""
    for value in values:
        text = text.replace(value, SECRET)
    return _IN_URL.sub(rf"\1:{SECRET}@", _SHAPES.sub(SECRET, text))


# `HF_TOKEN=abc`, `api_key: "abc"`: a name that says so, and a literal value up to the end of its line or quotes.
_ASSIGNED = (
    r"""(?<!\w)([A-Za-z_][\w-]*)(["']?\]?[^\S\n]*[:=][^\S\n]*)"""
    r"""(?:(["'])([^"'\s]{6,})\3|([\w+/=~.-]{6,})(?=["')]*\s*$))"""
)


def redact_text(text: str, values: Iterable[str] = ()) -> str:
    """`redact` for whole files of code and settings: also a literal that is assigned to a secret's name."""
    return re.sub(_ASSIGNED, _without_literal, redact(text, values), flags=re.M)


def _without_literal(match: re.Match[str]) -> str:
    name, between, quote, quoted, bare = match.groups()
    found = _is_literal_secret(name, quoted) if quoted else _is_bare_secret(name, bare)
    return f"{name}{between}{quote or ''}{SECRET}{quote or ''}" if found else match[0]


def _is_literal_secret(name: str, value: str) -> bool:
    """Whether text in quotes is one: no reference (`$TOKEN`, `{token}`), no piece of text (`<|end|>`), no name."""
    if value[0] in "$<{[%" or value == SECRET or (value.isupper() and is_secret_name(value)):
        return False
    # SORT_KEY = "created_at" is ordinary code: of a name that only ends like one, the value must look the part.
    return is_secret_key(name) or (_is_secret_constant(name) and any(c.isdigit() for c in value))


def _is_bare_secret(name: str, value: str) -> bool:
    """Whether a word without quotes is one: an identifier (`tokenizer.decode`, `float32`) is none."""
    if name.isupper() and "." not in value:
        return is_secret_key(name) or _is_secret_constant(name)
    digits = sum(c.isdigit() for c in value)
    return is_secret_key(name) and digits > (2 if value.replace(".", "_").isidentifier() else 0)


def _is_secret_constant(name: str) -> bool:
    return name.isupper() and is_secret_name(name) and not _TEXT_TOKENS & set(name.split("_"))


def redact_words(words: Iterable[str], values: Iterable[str] = ()) -> tuple[str, ...]:
    """A command line, safe to show: also `NAME=value` and `--name value` where NAME is a secret's."""
    safe: list[str] = []
    hide_next = False
    for word in words:
        name, equals, _ = word.lstrip("-").partition("=")
        hide = hide_next
        hide_next = word.startswith("--") and not equals and is_secret_key(name)
        if equals and (is_secret_key(name) or (name.isupper() and is_secret_name(name))):
            safe.append(word[: word.index("=") + 1] + SECRET)
        else:
            safe.append(SECRET if hide else redact(word, values))
    return tuple(safe)
