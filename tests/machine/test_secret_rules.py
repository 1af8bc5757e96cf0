"""Each rule of the table finds what it is for, and what people write and programs print is left as it is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.conftest import ROOT

from primus_machine.secrets.generate import joined, translated
from primus_machine.secrets.redaction import redact, redact_text
from primus_machine.secrets.rules import Rules, rules

DATA = ROOT / "packages/primus-machine/src/primus_machine/data/secrets"
EXAMPLES = {
    name: backwards[::-1]
    for name, _, backwards in (
        line.partition("\t")
        for line in (ROOT / "tests/machine/secret_examples.txt").read_text().splitlines()
        if not line.startswith("#")
    )
}


def test_every_rule_has_an_example_and_every_example_a_rule() -> None:
    known = [rule.id for rule in rules().all]
    assert len(known) == len(set(known))
    assert set(known) == EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_rule_alone_finds_its_example(name: str) -> None:
    [rule] = [rule for rule in rules().all if rule.id == name]
    text = f"before {EXAMPLES[name]} behind".encode()
    assert b"<secret>" in Rules([rule]).masked(text, b"<secret>"), "without this rule, its example would show"
    shown = redact(text.decode())
    assert shown.startswith("before ")
    assert shown.endswith((" behind", "<secret>"))
    assert redact(shown) == shown


def test_every_prefix_of_our_own_rules_is_one_of_a_secret() -> None:
    own = tomllib.loads((DATA / "own.toml").read_text())["rules"]
    prefixes = [word for rule in own if rule.get("scope", "word") == "word" for word in rule["keywords"]]
    drawn = "aB3dE5gH7jK9mN1pQ3sTuV5wX7yZ9bC1dE3fG5hJ7kL9"
    tails = (drawn, drawn[:32].upper(), f"pt_{drawn}", f"pat_{drawn}", "a1" * 16, "a1" * 20, f"live_{'a1' * 16}")
    for prefix in (word for word in prefixes if word[-1] in "-_"):
        tokens = [start + tail for start in (prefix, prefix.upper()) for tail in tails]
        assert any(token not in redact(token) for token in tokens), prefix


def test_the_same_is_found_in_a_long_log_and_in_json() -> None:
    noise = "iteration 1/10 | tokens_per_second_per_gpu: 1234.5 | checkpoint /data/x/iter_0000100\n" * 50
    for name, example in EXAMPLES.items():
        text = f"{noise}{example}\n{noise}"
        assert redact(text).startswith(noise), name
        assert "<secret>" in redact(text), name
        if '"' not in example and "'" not in example:
            assert json.loads(redact(json.dumps({"a": example, "b": "x@y"})))["b"] == "x@y", name


def test_the_data_name_their_source_and_what_is_left_out_and_why() -> None:
    data = json.loads((DATA / "gitleaks.json").read_text())
    assert data["origin"]["source"] == "https://github.com/gitleaks/gitleaks"
    assert re.fullmatch(r"v\d+\.\d+\.\d+.*", data["origin"]["commit"])
    assert "MIT License" in (DATA / "LICENSE-gitleaks").read_text()
    assert len(data["rules"]) > 200
    assert all(data["left_out"].values())
    assert not {rule["id"] for rule in data["rules"]} & data["left_out"].keys()


def test_the_rules_that_are_read_are_those_of_both_sources() -> None:
    again = "python -m primus_machine.secrets.generate > rules.json"
    assert (DATA / "rules.json").read_text() == joined(), f"the sources have changed: {again}"


@pytest.mark.parametrize(
    ("go", "python"),
    [
        (r"\b(LTAI(?i)[a-z0-9]{20})(?:[\x60'\"\s;]|\\[nr]|$)", r"\b(LTAI(?i:[a-z0-9]{20}))(?:[\x60'\"\s;]|\\[nr]|$)"),
        (r"""\b(k(?i)[a-z)]{2})(?:[\x60'"\s;]|\\[nr]|$)""", r"\b(k(?i:[a-z)]{2}))(?![\w-])"),
        (r"(?i)[\w.-]{0,50}?(?:acme)=([[:alnum:]]{9})\z", r"(?i:(?:acme)=([A-Za-z0-9]{9})\Z)"),
        (r"Z(?:(?P<a>b)|(?P<c>d))", r"Z(?:(?:b)|(?:d))"),
    ],
)
def test_a_pattern_of_go_is_written_for_python(go: str, python: str) -> None:
    assert translated({"id": "x", "regex": go, "keywords": ["x"]})["pattern"] == python


def ordinary() -> list[Path]:
    """What people write: documentation, examples, changelogs, and the code of Primus."""
    patterns = ("README.md", "docs/*.md", "examples/**/*", "packages/*/*.md", "packages/*/src/**/*.py", "benchmarks/*")
    found = [path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()]
    return [path for path in found if path.suffix not in (".pyc", ".bin", ".idx") and path.name != "secrets.md"]


@pytest.mark.full
def test_nothing_in_documentation_examples_and_code_is_taken_for_a_secret() -> None:
    paths = ordinary()
    assert len(paths) > 300
    for path in paths:
        text = path.read_text(errors="surrogateescape")
        assert redact(text) == text, path


LINES = """\
[2026-11-23 02:09:59.123456] iteration 100/ 1000 | elapsed time per iteration (ms): 1234.5 | loss: 2.345678E+00
step 10 | tokens_per_second_per_gpu: 12345.678901234567 | max_tokens: 4096 | num_tokens=131072 | TFLOP/s: 412.1
tokenizer: meta-llama/Llama-3.1-8B  tokenizer_type=HuggingFaceTokenizer eos_token=</s> key=value sort_key: created_at
commit 4b825dc642cb6eb9a060e54bf8d69288fbee4904 (HEAD -> main) index 8f2c1d9..4b825dc 100644
sha256:5f1c9a77e05f1c9a77e05f1c9a77e05f1c9a77e05f1c9a77e05f1c9a77e05f1c image rocm/megatron-lm@sha256:aaaaaaaaaaaaaaaa1
model.layers.0.self_attn.linear_qkv.weight: d41d8cd98f00b204e9800998ecf8427e (torch.Size([6144, 4096]))
Loading /data/models/shard-00001-of-00030.safetensors from https://huggingface.co/meta-llama/Llama-3.1-8B/resolve/main
NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0> commId 0x9f2e4c1d7a6b5e38
secret_name: my-secret-2024-a  password_file=/run/secrets/db  token_dispatcher=alltoall  api_key: ${API_KEY}
Authorization: required. The bearer token is read from HF_TOKEN; cookies: disabled; password: ********
GET /v1/models?limit=100&key=name HTTP/1.1 200  uuid 123e4567-e89b-12d3-a456-426614174000 pid=12345678901234567
export HF_TOKEN=$OTHER; password = getpass.getpass(); secret_key=hashlib.sha256(value.encode()).hexdigest()
gpu_0_memory_reserved_bytes=68719476736 rank_00000000000001 module_1234567890abc optimizer.param_groups[0]['lr']
time per token: 1234.56ms | latency/token: 12345.6us | forward pass: 1234.567ms | first pass: 12 | pass: 3 pass=2
token: 128256 token=0x7f3a2b1c4d5e token: 2026-11-23T02:09:59Z next token: the12 tokens/s: 12.3k tokens: 5B token_id: 7
eos_token: </s> pad_token: <|finetune_right_pad_id|> token: '<|reserved_special_token_5|>' eos_token_id: 128009
seed: 1234 data_seed: 12345678 random_seed=20240101 SEED=1234567 seed ............................ 1234
  wandb_project ................................... llama3-8b-run42
  moe_token_dispatcher_type ....................... alltoall_v2
GPU-5f1c9a77-e05f-1c9a-77e0-5f1c9a77e05f run_id=5f1c9a77-e05f-1c9a-77e0-5f1c9a77e05f key: value1234 cache_key=abc12345
KeyError: 'layers.0.self_attn' keyword: abc12345 monkey: abc12345 author: me12345678 passed: 12345678 compass: n12345
key_padding_mask: torch.bfloat16 token: torch.int64 query_key_value: fp8e4m3fn hf_token=args.hf_token2 login(token=token1)
wandb: Currently logged in as: me12345 (team-42). docker login succeeded; openssl version 3.0.2 15 Mar 2022
torchrun --nproc_per_node 8 -p 29500 python train.py -k 12 -w 4; ldap server: ldap01.example.org -w 10
secretName: my-secret-2024-a tokenCount: 12345abc secret_version: v12.3.4a access_key_id: minioadmin1 tokenizerFast2: x12
http://host:8080/x@y https://[::1]:8080/a@b git+https://github.com/a/b@v1.2 s3://bucket/key=12345678a
password: required; password: ********; HF_TOKEN is not set; WANDB_API_KEY: missing; credentials: not found; auth: none
{"token": 12345, "token_str": " the1", "tokens": ["a1b2c3d4"], "score": 0.1, "seed": 1234, "pass": 1}
"""
# What a person types, a script holds or a program prints; @@ is the secret.
PHRASES = """mysql -u root -p@@ -h db
mysqldump -uroot -p'@@' db
sshpass -p @@ ssh me@h
sshpass -p'@@' ssh me@h
Command '['sshpass', '-p', '@@', 'ssh', 'h']' returned non-zero exit status 5.
docker login r.io -u '$oauthtoken' -p @@
az login --service-principal -u x -p @@ --tenant t
redis-cli -h x -a @@ ping
ldapsearch -D cn=x -w @@ -b y
ssh-keygen -t ed25519 -N @@ -f x
openssl rsa -passin pass:@@ -in x
openssl enc -aes-256-cbc -k @@
smbclient //h/s -U me%@@
mc alias set x https://h me @@
wandb login --relogin @@@@
wandb.login(key="@@@@@@")
curl -b "session=@@" https://x
curl --cookie session=@@ https://x
Cookie: a=1; session=@@
ibmcloud login --apikey @@
kubeadm join 10.0.0.1:6443 --token @@
subprocess.run(['hf', 'login', '--token', '@@'])
pass: @@
token: @@
token=@@
"token": "@@"
"{\\"token\\": \\"@@\\"}"
pw: @@
pwd: @@
password is @@
your token: @@
pass_phrase=@@
ansible_ssh_pass=@@
aws_session_token = @@/+@@==
"SessionToken": "@@"
X-Amz-Security-Token: @@/@@
psk="@@"
OTP_SEED=@@
RECOVERY_CODE=@@
hmac_key: @@
FERNET_KEY=@@-@@_=
KAGGLE_KEY=@@
PAGERDUTY_TOKEN: @@
PrivateKey = @@+@@=
token%3D@@
\x1b[1mtoken\x1b[0m=\x1b[32m@@\x1b[0m
  wandb_api_key ................................... @@
  hf_token ........................................ @@
| DB_PASSWORD | @@ |
ENV DB_PASSWORD @@
('DB_PASSWORD', '@@')
Namespace(lr=0.1, my_token='@@', seed=1)
jdbc:mysql://h/d?user=u&password=@@
postgres://u:aa/@@@h/x
https://maker.ifttt.com/trigger/x/with/key/@@
//registry.npmjs.org/:_authToken=@@
_auth=@@
  password @@
db_password: ab$@@
<privateKey>@@</privateKey>
{"username":"me","key":"5f1c9a77e05f1c9a77e0@@"}
"""


@pytest.mark.parametrize("line", LINES.splitlines())
def test_an_ordinary_line_of_a_log_passes_unchanged(line: str) -> None:
    assert redact(line) == line


@pytest.mark.parametrize("phrase", PHRASES.splitlines())
@pytest.mark.parametrize("secret", ["q8ZdW2vRw4xT", "0f9c2ab7d1e4"])
def test_no_way_to_write_a_secret_shows_it(phrase: str, secret: str) -> None:
    whole = phrase.replace("@@", secret)
    within = (f"2026-11-23 INFO x.py:12 {whole}", f"{whole}\nbehind", json.dumps({"what": [whole]}), repr([whole]))
    for text in (whole, *within):
        shown = redact(text)
        assert secret not in shown
        assert redact(shown) == shown


def test_what_was_printed_before_hides_no_secret() -> None:
    table = Rules(rules().all)
    texts = [phrase.replace("@@", "q8ZdW2vRw4xT") for phrase in PHRASES.splitlines()] + [*EXAMPLES.values()]
    for text in texts:
        for harmless in (text[: len(text) // 2], *(text.replace("q8ZdW2vRw4xT", word) for word in ("", "1", "8" * 20))):
            table.masked(harmless.encode() + b"\n", b"<secret>")
    shown = table.masked("\n".join([LINES, *texts]).encode(), b"<secret>")
    assert shown == Rules(rules().all).masked("\n".join([LINES, *texts]).encode(), b"<secret>")
    assert b"q8ZdW2vRw4xT" not in shown


@pytest.mark.parametrize(
    "begun", ["token: ", "DB_PASSWORD=", "sshpass -p ", "  hf_token .......... ", '"authToken": "']
)
def test_an_unfinished_line_is_held_back_until_its_secret_is_whole(begun: str) -> None:
    assert rules().begun(begun.encode()) == len(begun)
    assert not rules().begun(b"tokens:  50%|#####     | 5/10 [00:01<00:01, 12.3token/s] ")


def test_what_a_real_program_prints_passes_unchanged() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import json, asyncio; help(json); help(asyncio)"],
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    text = done.stdout + done.stderr
    assert len(text) > 20_000
    assert redact(text) == text


def test_a_log_without_secrets_is_handed_on_without_a_copy() -> None:
    lines = "".join(
        f"[2026-11-23 02:09:59.{n:06}] iteration {n:8}/1000000 | consumed samples: {n * 512:12} | loss: {n / 7:.6E} | "
        f"tokens_per_second_per_gpu: {n * 3.3:.1f} | learning rate: 1.0E-05\n"
        for n in range(1000, 7_000)
    ).encode()
    assert rules().masked(lines, b"<secret>") is lines


PEM = "-----BEGIN {0}PRIVATE KEY-----\n{1}\n-----END {0}PRIVATE KEY-----\n"
BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj\nAgEAAoIBAQC7VJTUt9Us8cKjMzEfYyjiWA4R4\nab3="


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
@pytest.mark.parametrize("sign", ["", "+", "-", " ", "    "])
def test_a_whole_private_key_is_masked_and_its_lines_are_still_so_many(kind: str, sign: str) -> None:
    text = "".join(f"{sign}{line}\n" for line in PEM.format(kind, BODY).splitlines())
    shown = redact_text(f"before = 1\n{text}behind = 2\n")
    assert not [part for part in BODY.split() if part in shown]
    assert shown.count("\n") == text.count("\n") + 2
    assert shown.startswith(f"before = 1\n{sign}-----BEGIN {kind}PRIVATE KEY-----\n{sign}<secret>\n")
    assert shown.endswith("behind = 2\n")
    assert redact_text(shown) == shown


def test_a_private_key_in_json_and_without_an_end_is_masked() -> None:
    text = json.dumps({"private_key": PEM.format("", BODY), "client": "me"})
    assert not [part for part in BODY.split() if part in redact(text)]
    assert json.loads(redact(text))["client"] == "me"
    cut = PEM.format("", BODY).partition("ab3=")[0]
    assert not [part for part in BODY.split()[:2] if part in redact(cut)]


def test_a_text_about_private_keys_is_no_key() -> None:
    text = "use `-----BEGIN PRIVATE KEY-----` as the first line\nand then go on with your work as usual, please\n"
    assert redact(text) == text
