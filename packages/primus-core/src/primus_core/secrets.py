"""What is a secret, and how it is kept out of everything that is shown or saved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from primus_core.plan import SECRET

__all__ = ["is_secret_key", "is_secret_name", "looks_secret", "redact", "redact_words", "secret_values"]

_WORDS = frozenset({"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY"})
# A value may be a secret by its shape: Hugging Face, GitHub, GitLab, OpenAI/Anthropic, Slack, AWS, JWT.
_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{20,}"
    r"|xox[abposr]-[\w-]{10,}|AKIA[A-Z0-9]{16}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,})"
)
_IN_URL = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")


def is_secret_name(name: str) -> bool:
    """Whether an environment variable's name says that its value is a secret (`HF_TOKEN`, `WANDB_API_KEY`)."""
    words = name.upper().split("_")
    return bool(_WORDS & set(words)) or words[-1] == "KEY"


def is_secret_key(name: str) -> bool:
    """The same for a key of a config, where `text_key` is no secret but `api_key` is."""
    words = re.split(r"[_.\-]", name.upper())
    return bool(_WORDS & set(words)) or (
        words[-1] == "KEY" and {"API", "ACCESS", "PRIVATE", "AUTH"} & set(words) != set()
    )


def looks_secret(value: str) -> bool:
    """Whether a value has the shape of a well-known kind of token, or a URL with a password in it."""
    return bool(_SHAPES.search(value) or _IN_URL.search(value))


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values in `environ` that must not appear anywhere, longest first. Under six characters masks too much."""
    found = {value for name, value in environ.items() if is_secret_name(name)}
    found |= {match[2] for value in environ.values() for match in _IN_URL.finditer(value)}
    return tuple(sorted((value for value in found if len(value) >= 6), key=len, reverse=True))


def redact(text: str, values: Iterable[str] = ()) -> str:
    """`text` with known secret `values`, token shapes and passwords in URLs replaced by `<secret>`."""
    for value in values:
        text = text.replace(value, SECRET)
    return _IN_URL.sub(rf"\1:{SECRET}@", _SHAPES.sub(SECRET, text))


def redact_words(words: Iterable[str], values: Iterable[str] = ()) -> tuple[str, ...]:
    """A command line, safe to show: also `NAME=value` and `--name value` where NAME is a secret's."""
    safe: list[str] = []
    hide_next = False
    for word in words:
        name, equals, _ = word.lstrip("-").partition("=")
        hide = hide_next
        hide_next = word.startswith("--") and not equals and is_secret_key(name)
        if equals and (is_secret_key(name) or is_secret_name(name)):
            safe.append(word[: word.index("=") + 1] + SECRET)
        else:
            safe.append(SECRET if hide else redact(word, values))
    return tuple(safe)
