"""What counts as a secret, and that none is left in what is shown."""

from __future__ import annotations

import json
import string
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_machine.errors import RequestError
from primus_machine.secrets.redaction import (
    is_maskable,
    is_secret_key,
    is_secret_name,
    looks_secret,
    quoted,
    redact,
    redact_bytes,
    redact_text,
    redact_words,
    refuse_secrets,
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


_DRAWN = "qWzKXrtYPlmNBvCHgjdFsZaQEwrTyUIoPMnbVcxL"
"""Forty letters, and no digit: of a token of base 62, one in a thousand has none."""


@pytest.mark.parametrize(
    "token",
    [
        "gsk_" + _DRAWN,
        "nvapi-" + _DRAWN,
        "tgp_v1_" + _DRAWN,
        "dckr_pat_" + _DRAWN[:27],
        "sgp_" + "abcdef" * 6 + "abcd",
        "npm_" + _DRAWN[:36],
        "pplx-" + _DRAWN + _DRAWN[:8],
        "xoxb-" + _DRAWN,
        "r8_" + _DRAWN[:37],
        "xai-" + _DRAWN,
        "fw_" + _DRAWN[:24],
        "rpa_" + _DRAWN,
        "rpa_" + _DRAWN.upper(),
        "hf_oauth_" + _DRAWN,
        "hf_oauth_eyJhbGciOiJIUzI1.eyJzdWIiOiIx.SflKxwRJSMeKKF2QT4",
        "hvs." + _DRAWN[:24],
        "ghu_" + _DRAWN[:36],
        "GOCSPX-" + _DRAWN[:28],
        "dp.pt." + _DRAWN + _DRAWN[:3],
        "shpat_" + "abcdef" * 5 + "ab",
    ],
)
def test_a_token_of_fixed_prefix_needs_no_digit(token: str) -> None:
    coloured = (f"\x1b[1m{token}\x1b[0m", f"\x1b[38;5;196m{token}", f"\\u001b[0m{token}", f"\x1b[m{token}")
    escaped = (f'{{"a": "x\\n{token}"}}', f"x\\t{token}", f"\\u000a{token}", f"a%3D{token}", f"\\x0a{token}")
    for text in (token, f"export X={token}", f'{{"a": "{token}"}}', f"GET /x?y={token}&z=1", *coloured, *escaped):
        assert token[-12:] not in redact_text(text)
        assert token[-12:] not in redact(text)


@pytest.mark.parametrize(
    "name",
    [
        "sk_learn_gradient_boosting_classifier",
        "fw_gradient_accumulation_fusion_kernel",
        "fw_ForwardBackwardPipelineSchedule",
        "sk_MyLongModuleNameWithManyWordsInIt",
        "hvb.forward_backward_pipelining_without_interleaving",
        "rpa_RelativePositionalAttentionBias",
        "xai-explainable-artificial-intelligence",
    ],
)
def test_a_programs_name_that_begins_like_a_token_is_left(name: str) -> None:
    assert redact_text(f"call {name} now") == f"call {name} now"


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
        "OPENAI_API_KEYS",
        "OPENAI_API_KEY_2",
        "API_KEY2",
        "API_KEY_PROD",
        "HF_TOKENS",
        "HF_TOKEN_PROD",
        "PASSWORDS",
        "DB_PASS",
        "SMTP_PASS",
        "SSHPASS",
        "MYAPP_CREDS",
        "SECRETKEY",
        "PRIVATEKEY",
        "ACCESSKEY",
        "MY_APIKEYS",
        "SSH_KEY_RSA",
        "GITHUB_PAT",
        "REDISCLI_AUTH",
        "AUTHORIZATION",
        "AZURE_STORAGE_CONNECTION_STRING",
        "VAULT_SECRET_ID",
        "DB_PW",
        "API_BEARER",
        "SESSION_COOKIE",
        "GPG_PASSPHRASE",
        "AWS_CREDENTIAL",
        "SLACK_WEBHOOK",
        "SLACK_WEBHOOK_URL",
        "WIFI_PSK",
        "SERVICE_JWT",
        "LOGIN_PASSCODE",
        "OTP_SEED",
        "GITHUB_TOTP_SECRET",
        "WALLET_MNEMONIC",
        "RECOVERY_CODES",
        "SEED_PHRASE",
        "OCI_PASS_PHRASE",
        "KAGGLE_KEY",
    ],
)
def test_a_variable_whose_name_says_so_holds_a_secret(name: str) -> None:
    assert is_secret_name(name)


ORDINARY = [
    *("PATH", "PWD", "OLDPWD", "TOKENIZERS_PARALLELISM", "KEYBOARD", "NCCL_DEBUG", "MONKEY", "SSH_AUTH_SOCK", ""),
    *("PASSES", "COMPASS", "BYPASS", "NUM_PASSES", "FORWARD_PASS", "XAUTHORITY", "MAX_TOKENS", "TRAIN_TOKENS"),
    *("SORT_KEY", "SORT_KEYS", "TEXT_KEY", "SSH_PUBLIC_KEY", "EOS_TOKEN", "AWS_ACCESS_KEY_ID", "HF_TOKEN_PATH"),
    *("AWS_WEB_IDENTITY_TOKEN_FILE", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "GIT_ASKPASS", "SSH_ASKPASS"),
    *(
        "NCCL_IB_HCA",
        "LESSKEY",
        "FILE_PAT",
        "PW_ITERATIONS",
        "SLURM_PWR",
        "AUTHOR",
        "KEYS",
        "PATTERN",
        "KRB5CCNAME",
        "SEED",
        "DATA_SEED",
        "RECOVERY",
        "SYSTEM_PROMPT_PHRASE",
        "MOE_TOKEN_DISPATCHER",
        "XDG_SESSION_ID",
    ),
]


@pytest.mark.parametrize("name", ORDINARY)
def test_other_variables_do_not(name: str) -> None:
    assert not is_secret_name(name)


@given(
    st.sampled_from(["API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "PASSWORD", "HF_TOKEN", "SECRET", "CREDS", "APIKEY"]),
    st.sampled_from(["", "MY_", "OPENAI_", "A1_"]),
    st.sampled_from(["", "S", "2", "_2", "_PROD", "_RSA"]),
    st.booleans(),
)
def test_a_secrets_name_may_be_a_plural_have_a_number_or_say_more(
    name: str, before: str, after: str, lower: bool
) -> None:
    whole = before + name.removesuffix("S" if after == "S" else "") + after
    assert is_secret_name(whole.lower() if lower else whole)


@pytest.mark.parametrize(
    "key",
    [
        "api_key",
        "hf_token",
        "token",
        "password",
        "hub.auth-token",
        "private_key",
        "apiKey",
        "db_pass",
        "github_pat",
        "api_keys",
        "accessToken",
        "hf_tokens",
        "X-Api-Key",
        "db_pw",
        "session_cookie",
        "slack-webhook-url",
        "sessionToken",
        "AccessKeySecret",
        "dbPassword",
        "mysql_pwd",
        "hmac_key",
        "otp_seed",
    ],
)
def test_a_config_key_may_hold_a_secret(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "text_key",
        "key",
        "eos_token",
        "fim_eod_token",
        "pad-token",
        "moe_token_dispatcher_type",
        "num_tokens",
        "flops_per_token",
        "train_tokens",
        "tokenizer",
        "max-tokens",
        "token-count",
        "hf-token-file",
        "password_file",
        "forward_pass",
        "auth",
        "seed",
        "data_seed",
        "eosToken",
        "maxTokens",
        "accessKeyId",
        "secretName",
        "pwd",
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
    assert redact_bytes(token.encode()) == b"<secret>"


def test_a_password_in_a_url_is_masked_and_its_user_and_host_are_not() -> None:
    assert redact("git+https://me:pass@host:80/x?a=b@c") == "git+https://me:<secret>@host:80/x?a=b@c"
    assert redact("redis://:pass@h") == "redis://:<secret>@h"
    assert redact("tcp://host:29500 mail@x") == "tcp://host:29500 mail@x"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("https://pypiSEKRET99@host/simple", "pypiSEKRET99"),
        ("https://5f1c9a77e05f1c9a77e0@sentry.io/1", "5f1c9a77e05f1c9a77e0"),
        ("https://x-access-token:sEKRET1@github.com/a/b", "sEKRET1"),
        ("https://sEKRET-1-ab:@host", "sEKRET-1-ab"),
        ("Authorization: Bearer sEKRET1.x-y", "sEKRET1.x-y"),
        ('{"Authorization": "Basic dXNlcjpwYXNz"}', "dXNlcjpwYXNz"),
        ('"{\\"authorization\\": \\"token sEKRET1\\"}"', "sEKRET1"),
        ("bearer 5f1c9a77e05f1c9a77e0,", "5f1c9a77e05f1c9a77e0"),
        ("AccountName=me;AccountKey=ab+c/d==;EndpointSuffix=core", "ab+c/d=="),
    ],
)
def test_a_secret_is_known_by_what_stands_before_it(text: str, secret: str) -> None:
    assert redact(text) == text.replace(secret, "<secret>")
    assert looks_secret(text)
    assert redact_bytes(text.encode()) == redact(text).encode()
    assert secret_values({"HARMLESS": text}) == tuple(v for v in (secret,) if len(v) > 5) or "+" in secret


@pytest.mark.parametrize(
    "text",
    [
        "ssh://git@github.com/a.git https://me@host https://jsmith42@dev.azure.com/x git@github.com:a/b",
        "http://host12345678Ab:8080/x@y",
        "Bearer of bad news; the bearer token; Basic authentication",
        "Authorization: required",
        "Authorization: Bearer $TOKEN, Authorization: Bearer ${TOKEN}",
    ],
)
def test_what_only_looks_similar_is_left(text: str) -> None:
    assert redact(text) == text


LINE = st.text(max_size=60).filter(lambda text: len(text.split("\n")) == 1)


@pytest.mark.full
@given(LINE, st.sampled_from(["", *SHAPES, "Authorization: Bearer sEKRET1.x-y", "redis://:hunter22@h"]), LINE)
def test_a_line_is_masked_alike_alone_and_among_others_and_a_second_time(before: str, secret: str, after: str) -> None:
    line = f"{before} {secret} {after}"
    shown = redact(line)
    assert redact(f"{before}\n{line}\n{after}") == f"{redact(before)}\n{shown}\n{redact(after)}"
    assert redact(line) == shown
    assert redact_bytes(line.encode()) == shown.encode()
    assert not secret or secret not in shown


@given(
    secrets=st.lists(
        st.text(min_size=6, max_size=12).filter(lambda s: s not in "<secret>" and is_maskable(s)),
        min_size=1,
        max_size=3,
    ),
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


@pytest.mark.parametrize(
    "value", ["/data/models", "~/.token", "./a/b/c", "/tmp/abcdef", "1234567", "-0.123456", "3000000", "false", "short"]
)
def test_a_value_that_stands_in_every_log_is_not_masked_wherever_it_stands(value: str) -> None:
    assert not is_maskable(value)
    assert secret_values({"A_SECRET": value}) == ()


@pytest.mark.parametrize(
    "value", ["/aB3+dE/fGh", "wJalrXUtnFEMI/K7MDENG", "1234567890123456", "5f1c9a77e0", "truetrue"]
)
def test_a_value_that_only_begins_like_a_path_or_a_number_is(value: str) -> None:
    assert is_maskable(value)


def test_each_of_a_list_of_secrets_counts() -> None:
    assert set(secret_values({"API_KEYS": "first-1,second-2"})) == {"first-1,second-2", "first-1", "second-2"} | spelt(
        ["first-1,second-2"]
    )
    assert "service_account" not in secret_values({"CREDENTIALS": '{"type":"service_account","id":"x"}'})


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
        (["--env=HF_TOKEN=abc=", "--x=known-value"], ["--env=HF_TOKEN=<secret>", "--x=<secret>"]),
        (["--use-auth-token", "true", "--token", "$HF_TOKEN"], ["--use-auth-token", "true", "--token", "$HF_TOKEN"]),
    ],
)
def test_a_command_line_is_safe_to_show_and_otherwise_as_typed(words: list[str], safe: list[str]) -> None:
    assert redact_words(words, ("known-value",)) == tuple(safe)


WORDS_WITH_SECRETS = [
    ["hub.api_key=abc"],
    ["--hf_token=abc"],
    ["show", "--hf-token", "wSEKRET1"],
    ["--token=wSEKRET2"],
    ["HF_TOKEN=wSEKRET2"],
    ["--env=HF_TOKEN=wSEKRET2"],
    ["--export=ALL,HF_TOKEN=wSEKRET2"],
    ["a=hf_" + "x" * 24],
    ["url=https://u:wSEKRET@host/"],
    ["--header", "Authorization: Bearer wSEKRET2"],
    ["hf_" + "x" * 24],
    ["sshpass -p wSEKRET2 ssh h"],
]


@pytest.mark.parametrize("words", WORDS_WITH_SECRETS)
def test_a_secret_in_a_tasks_words_is_refused_without_repeating_it(words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        refuse_secrets(words)
    assert "contains a secret" in caught.value.what
    assert "export it" in caught.value.fix
    for secret in ("abc", "SEKRET", "hf_x"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["--tokenizer", "x", "--max-tokens", "4096", "--token-count", "7", "--eos-token", "<|end|>"],
        ["--hf-token-file", "some/where", "--password-stdin", "x"],
        ["--hf-token", "$TOKEN", "api_key=${API_KEY}", "--token=$TOKEN"],
        ["--use-auth-token", "true", "--token", "12", "--token", "/run/secrets/hf", "--token=<|im|>"],
        ["--token", "--next", "x", "--", "KEY=value"],
        ["moe.token_dispatcher_type=alltoall", "eos_token=</s>", "text_key=body", "tokens=5B"],
        ["--text", "the token: abcdefgh", "a sentence"],
    ],
)
def test_words_that_only_sound_like_a_secret_are_a_tasks_own(words: list[str]) -> None:
    refuse_secrets(words)


@given(st.lists(st.text(max_size=12), max_size=5))
def test_any_words_without_a_secret_are_shown_as_they_are(words: list[str]) -> None:
    if not any("://" in word or "=" in word or word.startswith("--") for word in words):
        assert redact_words(words) == tuple(words)
        refuse_secrets(words)


@pytest.mark.parametrize(
    ("value", "key", "shown"),
    [
        ({"HF_TOKEN": "SEKRET36", "A": 1}, "env", "{'HF_TOKEN': '<secret>', 'A': 1}"),
        ("HF_TOKEN=SEKRET38", "env", "'HF_TOKEN=<secret>'"),
        (["HF_TOKEN=SEKRET38", 3], "env", "['HF_TOKEN=<secret>', 3]"),
        ([{"x": {"api_key": 123456}}], "env", "[{'x': {'api_key': '<secret>'}}]"),
        ("A=1 HF_TOKEN=SEKRET38", "env", "'A=1 HF_TOKEN=<secret>'"),
        ("SEKRET", "hf-token", "'<secret>'"),
        (["SEKRET"], "api-keys", "['<secret>']"),
        ("many", "nnodes", "'many'"),
        (None, "hf-token", "None"),
    ],
)
def test_an_error_quotes_a_config_without_the_secrets_in_it(value: object, key: str, shown: str) -> None:
    assert quoted(value, key) == shown


@given(st.text(min_size=6, max_size=20).filter(is_maskable))
def test_a_value_is_known_as_programs_and_urls_write_it_too(value: str) -> None:
    values = secret_values({"A_TOKEN": value})
    message = json.dumps({"a": value})
    texts = (value, message, json.dumps(message), json.dumps(value, ensure_ascii=False), repr({"a": value}))
    for text in (*texts, repr(value.encode()), quote(value), quote(value, safe=""), quote_plus(value)):
        assert "<secret>" in redact(text, values)
        assert value not in redact(text, values).replace("<secret>", "") or value in "{'a': ''}\"\"b''\\"
    assert value in spelt([value])


def test_the_ways_to_write_a_value_are_whole() -> None:
    assert spelt(['\u00e9"\n']) == {
        *('\u00e9"\n', '\u00e9"\\n', '\\xc3\\xa9"\\n', "%C3%A9%22%0A"),
        *('\\u00e9\\"\\n', '\u00e9\\"\\n', '\\\\u00e9\\\\\\"\\\\n', '\\u00e9\\\\\\"\\\\n'),
    }


def test_of_a_secret_that_is_a_plain_word_one_spelling_is_enough() -> None:
    assert spelt(["hf-abc_123.x~y"]) == {"hf-abc_123.x~y"}


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
        'curl -H "Authorization: Bearer $HF_TOKEN" -u "$ME:$PASSWORD" x',
        "curl -u me:${PASSWORD} --password $PW --token=$(cat x)",
        "docker run -u 1000:1000 -u jenkins:docker x",
        "use --token instead of --password because",
        "x --token-file some/where1 --password TOKEN --token /run/secrets/hf1 --max-tokens 100000",
        'parser.add_argument("--token", default="")',
        "git push -u https://github.com/A1/b1 main",
        "HF_TOKEN=$OTHER1 python x.py",
        "PASSWORD is needed: API_KEY: see docs1 there",
        'password: "123456"',
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
        ('curl -H "Authorization: Bearer sEKRET11" https://x/y', "sEKRET11"),
        ("curl -H 'Authorization: Basic c0VLUkVU' https://x/y", "c0VLUkVU"),
        ('headers = {"Authorization": "Bearer sEKRET11"}', "sEKRET11"),
        ('curl -H "X-Api-Key: sEKRET1134" https://x/y', "sEKRET1134"),
        ("curl -u me:sEKRET11 https://x", "sEKRET11"),
        ('curl --user "me:sEKRET11" https://x', "sEKRET11"),
        ("curl -ume:sEKRET11", "sEKRET11"),
        ("mysql --password sEKRET11 -h x", "sEKRET11"),
        ("hf login --token sEKRET11 && x", "sEKRET11"),
        ("hf login --token 'abcdefgh' && x", "abcdefgh"),
        ("hf login --token=abcdefgh && x", "abcdefgh"),
        ('["--api-key=abcdefgh1", x]', "abcdefgh1"),
        ("HF_TOKEN=abcdefg1 python x.py", "abcdefg1"),
        ("run: HF_TOKEN=abcdefgh", "abcdefgh"),
        ("args: --token=abcdefgh", "abcdefgh"),
        ("HF_TOKEN=abcdefgh==", "abcdefgh=="),
        ("db_pw: abcd123", "abcd123"),
        ("db_pw: abcd-ef12 was the one before", "abcd-ef12"),
        ("db_pw: abcd-ef1", "abcd-ef1"),
        ("session_cookie = abcd123", "abcd123"),
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


def test_a_key_is_a_secret_where_it_stands_beside_what_it_opens() -> None:
    assert [is_secret_name(name) for name in ("SSH_KEY", "KEY_SSH", "KEY_OF_SSH")] == [True, True, False]
