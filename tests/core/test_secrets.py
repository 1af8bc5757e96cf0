"""What counts as a secret, and that none is left in what is shown."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_core.secrets import (
    MAY_HIDE_SECRET,
    is_secret_key,
    is_secret_name,
    looks_secret,
    redact,
    redact_text,
    redact_words,
    secret_values,
    spelt,
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


@given(st.text(min_size=6, max_size=20))
def test_a_value_is_known_as_json_and_repr_write_it_too(value: str) -> None:
    values = secret_values({"A_TOKEN": value})
    for text in (value, json.dumps({"a": value}), json.dumps(value, ensure_ascii=False), repr({"a": value})):
        assert value not in redact(text, values).replace("<secret>", "") or value in "{'a': ''}\"\""
    assert value in spelt([value])


@pytest.mark.parametrize(
    "text",
    [
        "token = tokenizer.encode(x)",
        "token = tokenizer.v2_encode",
        "  token: torch.int64",
        "self.token = next_token",
        "key=value",
        "SORT_KEY = 'created_at'",
        'EOS_TOKEN = "<|endoftext|>"',
        'BOS_TOKEN = "begin_of_text"',
        "PAD_TOKEN=tokenizer.pad_token",
        '"token": "<|im_start|>"',
        'token = os.environ["HF_TOKEN"]',
        'HF_TOKEN = os.environ.get("HF_TOKEN", "")',
        'api_key = "OPENAI_API_KEY"',
        "hf_token: ${HF_TOKEN}",
        'hf_token: "${HF_TOKEN}"',
        'export HF_TOKEN="$(cat ~/.token)"',
        "export HF_TOKEN=$OTHER",
        'echo "env.HF_TOKEN=$HF_TOKEN"',
        "print('env.HF_TOKEN=' + value)",
        "password = getpass.getpass()",
        "password: str = Field(default=None)",
        "HF_TOKEN=\nNEXT=abcdef123",
        "index 4b825dc642cb6eb9a060e54bf8d69288fbee4904..8f2c1d9 100644",
        "text_key: description_v1_2024",
    ],
)
def test_ordinary_code_is_kept_byte_for_byte(text: str) -> None:
    for sign in ("", "+", "-", " "):
        assert redact_text(f"{sign}{text}\n") == f"{sign}{text}\n"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("HF_TOKEN=abcdefgh", "abcdefgh"),
        ("export HF_TOKEN='abcdefgh'", "abcdefgh"),
        ("hf_token: planted-4d", "planted-4d"),
        ("hub.token: 'abcdefgh'", "abcdefgh"),
        ('{"api_key": "abcdefgh", "x": 1}', "abcdefgh"),
        ('wandb.login(token="abcdefgh")', "abcdefgh"),
        ('os.environ["HF_TOKEN"] = "abcdefgh"', "abcdefgh"),
        ("self.password = 'hunter-hunter'", "hunter-hunter"),
        ("echo env.HF_TOKEN=abcdefgh", "abcdefgh"),
        ('echo "env.HF_TOKEN=abcdefgh"', "abcdefgh"),
        ("print('env.HF_TOKEN=abcdefgh')", "abcdefgh"),
        ("OPENAI_KEY = 'abc123def'", "abc123def"),
        ("api-key = 1a2b3c4d5e6f", "1a2b3c4d5e6f"),
    ],
)
def test_a_literal_that_is_assigned_to_a_secrets_name_is_masked_and_nothing_around_it(text: str, secret: str) -> None:
    for sign in ("", "+", "-", " ", "+    "):
        assert redact_text(f"{sign}{text}\n") == f"{sign}{text}\n".replace(secret, "<secret>")


@given(st.text(max_size=80))
def test_masking_a_text_twice_changes_nothing_more(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


CODE = st.lists(
    st.tuples(
        st.sampled_from(["", "+", "-", " "]),
        st.sampled_from(["loss", "lr", "num_tokens", "x.key", "eos_token", "tokenizer", "keys", "path", "KEYBOARD"]),
        st.sampled_from([" = ", "=", ": "]),
        st.text(string.ascii_letters + string.digits + "_-.()[]{}'\", +*/", max_size=30),
    ),
    max_size=5,
)


@given(CODE)
def test_a_diff_that_assigns_nothing_to_a_secrets_name_stays_as_it_is(rows: list[tuple[str, str, str, str]]) -> None:
    names = ("token", "sk-", "hf_", "xox", "gh", "AKIA", "eyJ", "glpat", "=", ":")
    text = "".join("".join(row) + "\n" for row in rows if not any(name in row[3] for name in names))
    assert redact_text(text) == text


@given(st.sampled_from(["HF_TOKEN", "hf_token", "password", "DB_PASSWORD"]), st.text(string.ascii_letters, min_size=6))
def test_no_quoted_literal_survives_its_assignment(name: str, value: str) -> None:
    if not value.isupper():
        assert f'"{value}"' not in redact_text(f'{name} = "{value}"\n')
