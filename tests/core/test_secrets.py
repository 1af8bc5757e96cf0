"""What counts as a secret, and that none is left in what is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_core.secrets import (
    MAY_HIDE_SECRET,
    is_secret_key,
    is_secret_name,
    looks_secret,
    redact,
    redact_words,
    secret_values,
)

SHAPES = [
    "hf_" + "a" * 30,
    "ghp_" + "A1" * 12,
    "github_pat_" + "a" * 22,
    "glpat-" + "x" * 20,
    "sk-ant-" + "x" * 30,
    "xoxb-1234567890-abc",
    "AKIA" + "A" * 16,
    "eyJhbGciOiJIUzI1.eyJzdWIiOiIx.SflKxwRJSMeKKF2QT4",
]


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "PGPASSWORD",
        "MYSQL_PWD",
        "GOOGLE_CREDENTIALS",
        "NPM_AUTHTOKEN",
        "github_token",
        "TOKEN",
        "OPENAI_KEY",
    ],
)
def test_a_variable_whose_name_says_so_holds_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["PATH", "PWD", "OLDPWD", "TOKENIZERS_PARALLELISM", "KEYBOARD", "NCCL_DEBUG", "MONKEY", "SSH_AUTH_SOCK", ""]
)
def test_other_variables_do_not(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("key", ["api_key", "hf_token", "token", "password", "hub.auth-token", "private_key"])
def test_a_config_key_may_hold_a_secret(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "text_key",
        "key",
        "eos_token",
        "pad-token",
        "moe_token_dispatcher_type",
        "num_tokens",
        "flops_per_token",
        "lr",
        "",
    ],
)
def test_keys_of_a_language_model_are_no_secrets(key: str) -> None:
    assert not is_secret_key(key)


@pytest.mark.parametrize("token", SHAPES)
def test_well_known_tokens_are_recognised_and_masked_wherever_they_stand(token: str) -> None:
    assert looks_secret(token)
    assert redact(f'a "{token}", b') == 'a "<secret>", b'
    assert MAY_HIDE_SECRET.search(token.encode())


def test_a_password_in_a_url_is_masked_and_its_user_and_host_are_not() -> None:
    assert redact("git+https://me:pass@host:80/x?a=b@c") == "git+https://me:<secret>@host:80/x?a=b@c"
    assert redact("redis://:pass@h") == "redis://:<secret>@h"
    assert redact("tcp://host:29500 mail@x") == "tcp://host:29500 mail@x"


@given(st.text(max_size=60))
def test_the_cheap_look_misses_nothing_that_would_be_masked(text: str) -> None:
    if redact(text) != text:
        assert MAY_HIDE_SECRET.search(text.encode("utf-8", "surrogatepass"))


@given(
    secrets=st.lists(st.text(min_size=6, max_size=12).filter(lambda s: s not in "<secret>"), min_size=1, max_size=3),
    text=st.text(max_size=20),
)
def test_no_known_value_is_left_in_a_text(secrets: list[str], text: str) -> None:
    values = secret_values({f"V{index}_TOKEN": secret for index, secret in enumerate(secrets)})
    shown = redact(f"{text}{secrets[0]}{text}", values)
    assert secrets[0] not in shown.split("<secret>")
    assert "<secret>" in shown


def test_the_longest_value_is_masked_first_and_short_ones_are_left() -> None:
    values = secret_values({"A_TOKEN": "abcdef", "B_TOKEN": "abcdefgh", "C_TOKEN": "true", "PLAIN": "visible"})
    assert values == ("abcdefgh", "abcdef")
    assert redact("abcdefgh true visible", values) == "<secret> true visible"


def test_each_line_of_a_long_secret_counts() -> None:
    values = secret_values({"SSH_PRIVATE_KEY": "-----BEGIN-----\nMIIabcdef\n-----END-----\n"})
    assert redact("log: MIIabcdef", values) == "log: <secret>"


def test_a_password_in_the_url_of_any_variable_is_a_value_to_hide() -> None:
    assert secret_values({"HTTP_PROXY": "http://me:hunter22@proxy:80"}) == ("hunter22",)


@pytest.mark.parametrize(
    ("words", "safe"),
    [
        (["--env", "HF_TOKEN=abc"], ["--env", "HF_TOKEN=<secret>"]),
        (["hub.api_key=abc"], ["hub.api_key=<secret>"]),
        (["--hub.token", "abc", "x"], ["--hub.token", "<secret>", "x"]),
        (["--hub.token=abc"], ["--hub.token=<secret>"]),
        (["x", "known-value"], ["x", "<secret>"]),
        (["--moe-token-dispatcher-type", "alltoall"], ["--moe-token-dispatcher-type", "alltoall"]),
        (["eos_token=</s>", "lr=1"], ["eos_token=</s>", "lr=1"]),
    ],
)
def test_a_command_line_is_safe_to_show_and_otherwise_as_typed(words: list[str], safe: list[str]) -> None:
    assert redact_words(words, ("known-value",)) == tuple(safe)
