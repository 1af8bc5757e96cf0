"""Fifty kinds of secrets, made here by chance, so that no scanner takes this file for a leak."""

from __future__ import annotations

import random
import string

_chance = random.Random(20_17)
_LETTERS = string.ascii_letters + string.digits


def _some(count: int, letters: str = _LETTERS) -> str:
    """Random letters, at least one of them a digit."""
    return "".join(_chance.choice(letters) for _ in range(count - 1)) + _chance.choice("23456789")


def _hex(count: int) -> str:
    return _some(count, "abcdef0123456789")


_UPPER = string.ascii_uppercase + string.digits
_BEFORE = {  # what the secret is, or begins with
    "hugging face": ("hf_", 34),
    "github": ("ghp_", 36),
    "github app": ("ghs_", 36),
    "github fine-grained": ("github_pat_", 82),
    "gitlab": ("glpat-", 20),
    "gitlab runner": ("glrt-", 20),
    "openai": ("sk-proj-", 60),
    "anthropic": ("sk-ant-api03-", 93),
    "groq": ("gsk_", 52),
    "nvidia": ("nvapi-", 64),
    "replicate": ("r8_", 37),
    "slack bot": (f"xoxb-{_some(12, string.digits)}-{_some(12, string.digits)}-", 24),
    "google": ("AIza", 35),
    "google oauth": ("ya29.", 60),
    "stripe": ("sk_live_", 24),
    "npm": ("npm_", 36),
    "pypi": ("pypi-AgEIcHlwaS5vcmc", 80),
    "sendgrid": ("SG.", 66),
    "docker hub": ("dckr_pat_", 27),
    "vault": ("hvs.", 95),
    "telegram": (f"{_some(9, string.digits)}:AA", 33),
    "wandb": ("wandb_v1_", 60),
}
_WHOLE = {
    "aws id": f"AKIA{_some(16, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567')}",
    "aws session id": f"ASIA{_some(16, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567')}",
    "digitalocean": f"dop_v1_{_hex(64)}",
    "databricks": f"dapi{_hex(32)}",
    "grafana": f"glsa_{_some(32)}_{_hex(8)}",
    "twilio": f"SK{_hex(32)}",
    "shopify": f"shpat_{_hex(32)}",
    "postman": f"PMAK-{_hex(24)}-{_hex(34)}",
    "jwt": f"eyJ{_some(30)}.eyJ{_some(40)}.{_some(43)}",
    "age": f"AGE-SECRET-KEY-1{_some(58, 'QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L'[:-1]).replace('1', 'Q')[:57]}L",
    "pulumi": f"pul-{_hex(40)}",
    "heroku": f"HRKU-AA{_some(58)}",
    "sourcegraph": f"sgp_{_hex(40)}",
}
_WITHIN = {  # a secret by what stands around it
    "password in a url": ("postgres://ada:{}@db.example/train", _some(14)),
    "token in a url": ("https://{}@git.example/ada/x", _some(30)),
    "slack webhook": ("https://hooks.slack.com/services/{}", f"T{_some(9, _UPPER)}/B{_some(9, _UPPER)}/{_some(24)}"),
    "discord webhook": ("https://discord.com/api/webhooks/{}", f"{_some(18, string.digits)}/{_some(68)}"),
    "teams webhook": ("https://acme.webhook.office.com/webhookb2/{}", f"{_hex(8)}-0000@{_hex(8)}/IncomingWebhook/{_hex(32)}"),
    "aws signed url": ("https://b.s3.amazonaws.com/x?X-Amz-Date=1&X-Amz-Signature={}&x=1", _hex(64)),
    "azure signed url": ("https://a.blob.core.windows.net/x?sv=2024&sig={}", f"{_some(20)}%2B{_some(20)}%3D"),
    "google signed url": ("https://storage.googleapis.com/x?Signature={}&Expires=1", _some(60)),
    "api key in a url": ("https://api.example/v1?api_key={}", _some(20)),
    "bearer": ("Authorization: Bearer {}", _some(30)),
    "basic": ('{{"Authorization": "Basic {}"}}', _some(24)),
    "cookie": ("Cookie: session={}", _some(26)),
    "api key header": ("X-Api-Key: {}", _some(24)),
    "azure connection": ("AccountName=me;AccountKey={}==;EndpointSuffix=core", f"{_some(20)}+{_some(20)}/{_some(20)}"),
    "database connection": ("Server=db;User=ada;Password={};", _some(12)),
    "said to be one": ('config: {{"client_secret": "{}"}}', _some(20)),
    "datadog": ("datadog_key = {}", _hex(40)),
}  # fmt: skip

KINDS: dict[str, tuple[str, str]] = {
    **{name: (begin + (body := _some(count)), body) for name, (begin, count) in _BEFORE.items()},
    **{name: (whole, whole) for name, whole in _WHOLE.items()},
    **{name: (form.format(secret), secret) for name, (form, secret) in _WITHIN.items()},
}
"""By name: a text as it may stand anywhere, and what of it must not be seen."""
BODY = [_some(64) for _ in range(4)]
PRIVATE_KEY = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *BODY, "-----END RSA PRIVATE KEY-----"])
"""The one with several lines."""


def found_in(text: str) -> list[str]:
    """The kinds whose secret stands in a text."""
    lines = {f"private key, line {number}": line for number, line in enumerate(BODY)}
    secrets = {**{name: secret for name, (_, secret) in KINDS.items()}, **lines}
    return [name for name, secret in secrets.items() if secret in text]
