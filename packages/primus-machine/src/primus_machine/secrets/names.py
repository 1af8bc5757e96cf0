"""Which names say that a value is a secret: of environment variables, and of settings and flags."""

from __future__ import annotations

import functools
import re

__all__ = ["SECRET", "is_secret_key", "is_secret_name", "says_secret"]

SECRET = "<secret>"  # noqa: S105  # what stands in a secret's place
"""Stands where a secret's value would be, in everything that is shown or saved."""

_ALWAYS = frozenset(
    {
        *("SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CRED", "CREDS", "APIKEY", "AUTHORIZATION"),
        *(
            "CONNSTR",
            "CONNECTIONSTRING",
            "BEARER",
            "COOKIE",
            "COOKIES",
            "PASSCODE",
            "HTPASSWD",
            "JWT",
            "WEBHOOK",
            "PSK",
            "MNEMONIC",
            "OTP",
            "TOTP",
        ),
    }
)
# Two words run into one: PGPASSWORD, SSHPASS, NPM_AUTHTOKEN, `accessKey`; and several of them.
_JOINED = (
    *("SECRET", "PASSWORD", "PASSWD", "APIKEY", "SECRETKEY", "PRIVATEKEY", "ACCESSKEY", "ACCOUNTKEY", "AUTHKEY"),
    *(
        "DBPASS",
        "SSHPASS",
        "SMTPPASS",
        "PGPASS",
        "BINDPW",
        "ROOTPW",
        "USERPW",
        "ADMINPW",
        "DBPW",
        "MYPASS",
        "AUTHTOKEN",
        "ACCESSTOKEN",
        "APITOKEN",
        "HFTOKEN",
        "REFRESHTOKEN",
    ),
)
_ENDINGS = (*_JOINED, *(f"{word}S" for word in (*_JOINED, "PASSPHRASE", "CREDENTIAL")))
# A last word by which the name is about a secret, and the value only says where it is, or how many.
_ABOUT = frozenset(
    {
        *("FILE", "PATH", "DIR", "URL", "URI", "ENDPOINT", "SOCK", "STDIN", "NAME", "STORE", "HELPER", "POLICY"),
        *("COUNT", "LENGTH", "LEN", "SIZE", "LIMIT", "TYPE", "TTL", "TIMEOUT", "ENABLED", "PARALLELISM"),
        *("VERSION", "DISPATCHER"),
    }
)
# Words around TOKEN that make it a piece of text, not a secret: `eos_token`, `flops_per_token`.
_TEXT_TOKENS = frozenset(
    {
        *("EOS", "BOS", "PAD", "UNK", "MASK", "SEP", "CLS", "STOP", "START", "END", "IMAGE", "VIDEO", "AUDIO", "PER"),
        *("MAX", "MIN", "NUM", "TOTAL", "BATCH", "SEQ", "SPECIAL", "ADDED", "PROMPT", "THINK", "IGNORE"),
        *("NEXT", "PREVIOUS", "FIRST", "LAST", "EACH", "UNKNOWN", "UNEXPECTED", "PREDICTED", "GENERATED", "VOCAB"),
        *("EOD", "FIM"),
    }
)
# Several tokens are mostly pieces of text, too (TRAIN_TOKENS), unless somebody hands them out.
_ISSUERS = frozenset(
    {
        *("HF", "FACE", "HUGGINGFACE", "HUB", "GITHUB", "GITLAB", "GH", "GIT", "WANDB", "SLACK", "NPM", "PYPI"),
        *("OPENAI", "ANTHROPIC", "API", "ACCESS", "AUTH", "OAUTH", "BEARER", "REFRESH", "SECRET", "SERVICE", "SESSION"),
        *("BOT", "ADMIN", "VAULT", "DEPLOY", "JWT"),
    }
)
# Two words that say it together; `seed` alone is that of random numbers, and `phrase` a piece of text.
_PAIRS = frozenset(
    {
        *(("CONNECTION", "STRING"), ("PASS", "PHRASE"), ("SEED", "PHRASE"), ("WALLET", "SEED"), ("MFA", "SEED")),
        *((first, last) for first in ("RECOVERY", "BACKUP") for last in ("CODE", "CODES", "PHRASE", "SEED", "KEY")),
    }
)
# What opens something, and not what a table is sorted by.
_OPENING = frozenset(
    {
        *("API", "ACCESS", "PRIVATE", "SECRET", "AUTH", "SSH", "ACCOUNT", "ENCRYPTION", "SIGNING", "DEPLOY"),
        *("HMAC", "FERNET", "SUBSCRIPTION", "WEBHOOK"),
    }
)
_DATA_KEYS = frozenset(
    {
        *("SORT", "TEXT", "GROUP", "ORDER", "PARTITION", "PRIMARY", "FOREIGN", "PUBLIC", "CACHE", "INDEX", "LOOKUP"),
        *("DATA", "IMAGE", "LABEL", "INPUT", "OUTPUT", "HOT", "META"),
    }
)
_COMPUTED_PASSES = frozenset(
    {
        *(
            "FORWARD",
            "BACKWARD",
            "FWD",
            "BWD",
            "ONE",
            "TWO",
            "FIRST",
            "SECOND",
            "LAST",
            "SINGLE",
            "MULTI",
            "HIGH",
            "LOW",
        ),
        *("NEXT", "EACH", "WARMUP", "TEST"),
    }
)
_PATTERNS = frozenset({"FILE", "NAME", "GLOB", "INCLUDE", "EXCLUDE", "MATCH", "SEARCH", "SPLIT", "LAYER"})


def is_secret_name(name: str) -> bool:
    """Whether an environment variable's name says that its value is a secret (`HF_TOKEN`, `WANDB_API_KEY_2`)."""
    words = _words(name)
    if _is_about(words):
        return False
    before, last = {*words[:-1]}, words[-1]
    return (
        _is_secret(words)
        or (_has_token(words) and not _TEXT_TOKENS & {*words})
        or (last == "KEY" and not _DATA_KEYS & before)
        or (last == "AUTH" and bool(before))
        or (last == "PAT" and bool(before) and not _PATTERNS & before)
    )


def is_secret_key(name: str) -> bool:
    """The same for a key of a config: `api_key` and `hf_token`, but not `text_key`, `token_dispatcher`, `eos_token`."""
    words = _words(name)
    if _is_about(words):
        return False
    return (
        _is_secret(words)
        or (words[-1] == "TOKEN" and not _TEXT_TOKENS & {*words})
        or (words[-1] == "PAT" and bool(_ISSUERS & {*words}))
        or words[-2:] == ["BASIC", "AUTH"]
    )


@functools.lru_cache(1000)
def says_secret(name: str) -> bool:
    """The same for a name of which nobody knows whether it is a setting's or a variable's; those are in capitals."""
    name = name.rpartition(".")[2]
    return is_secret_key(name) or ("_" in name and name.isupper() and is_secret_name(name))


def _is_about(words: list[str]) -> bool:
    """Whether the value only says where a secret is, or how many; who knows a webhook's address may write to it."""
    return not words or (words[-1] in _ABOUT and not (words[-1] in ("URL", "URI") and "WEBHOOK" in words))


def _words(name: str) -> list[str]:
    """`OPENAI_API_KEY_2`, `openai.api-key2` and `openaiApiKey` as OPENAI, API, KEY."""
    parts = re.split(r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])", name)
    return [word for part in parts if (word := part.upper().rstrip("0123456789"))]


def _has_token(words: list[str]) -> bool:
    return "TOKEN" in words or words[-1].endswith("TOKEN")


def _is_secret(words: list[str]) -> bool:
    """What variables and settings have in common."""
    found = {*words}
    return (
        bool(_ALWAYS & found)
        or any(word.endswith(_ENDINGS) for word in words)
        or _opens(words)
        or ("TOKENS" in found and bool(_ISSUERS & found) and not _TEXT_TOKENS & found)
        or words[-1] == "PW"
        or (words[-1] == "PASS" and not _COMPUTED_PASSES & found)
        or (words[-1] == "PWD" and len(words) > 1)
        or tuple(words[-2:]) in _PAIRS
    )


def _opens(words: list[str]) -> bool:
    """A key with the word for what it opens right beside it: API_KEYS, SSH_KEY_RSA; but no AWS_ACCESS_KEY_ID."""
    if words[-1] == "ID":
        return False
    return any(
        word in ("KEY", "KEYS") and bool(_OPENING & {*words[max(0, index - 1) : index], *words[index + 1 : index + 2]})
        for index, word in enumerate(words)
    )
