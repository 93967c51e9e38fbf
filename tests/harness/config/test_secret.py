from __future__ import annotations

import pytest

from harness.config.secret import find_secret, looks_like_secret, looks_like_secret_url


@pytest.mark.parametrize(
    "name",
    [
        "API_KEY",
        "WANDB_API_KEY",
        "KEY",
        "SSH_KEY_PATH",
        "apiKey",
        "OPENAI_APIKEY",
        "HF_TOKEN",
        "hftoken",
        "token",
        "SECRET",
        "CLIENT_SECRET_1",
        "my-secret",
        "PASS",
        "DB_PASS",
        "PASSWORD",
        "PGPASSWORD",
        "PGPASS",
        "PASSPHRASE",
        "MYSQL_PASSWD",
        "PAT",
        "GITHUB_PAT",
        "CREDENTIAL",
        "CREDENTIALS",
        "aws.credentials",
        "AUTH",
        "BASIC_AUTH",
    ],
)
def test_names_of_secrets_are_recognized(name: str) -> None:
    assert looks_like_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "tokens",
        "MAX_TOKENS",
        "keep_last",
        "path",
        "PATH",
        "PYTHONPATH",
        "keys",
        "author",
        "AUTHOR",
        "monkey",
        "KEYBOARD",
        "compass",
        "bypass",
        "passes",
        "pattern",
        "TOKENIZERS_PARALLELISM",
        "metrics_keys",
        "authority",
        "patience",
        "secretary",
        "seed",
        "OMP_NUM_THREADS",
    ],
)
def test_harmless_names_are_not(name: str) -> None:
    assert not looks_like_secret(name)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("export WANDB_API_KEY=0123abc", "`WANDB_API_KEY`"),
        ("export A=1 HF_TOKEN='abc def'; python", "`HF_TOKEN`"),
        ('export A=1 && HF_TOKEN="abc"', "`HF_TOKEN`"),
        ("--export=ALL,DB_PASSWORD=abc", "`DB_PASSWORD`"),
        ("--export='ALL,DB_PASSWORD=abc'", "`DB_PASSWORD`"),
        ("tool --api-key=abc", "`api-key`"),
        ("tool --token abc", "`token`"),
        ("curl -H 'Private-Token: abc' x", "`Private-Token`"),
        ('curl -H "Authorization: Bearer abc" x', "`Authorization`"),
        ("curl -H 'authorization: abc' x", "`Authorization`"),
        ("huggingface-cli login hf_abcdefghijABCDEFGHIJ0123", "a token"),
        ("echo ghp_abcdefghijABCDEFGHIJ0123 > x", "a token"),
        (f"wandb login --relogin {'0123456789' * 4}", "a token"),
        ("git clone https://me:abc@host/x", "a URL"),
        ("curl https://host/x?access_token=abc", "`access_token`"),
        ("curl 'https://store/blob?sp=r&sig=abc'", "a URL"),
        ("curl -d hi https://hooks.slack.com/services/T0/B0/aB3aB3aB3aB3aB3aB3", "a URL"),
    ],
)
def test_a_line_that_holds_a_secret_is_found(line: str, what: str) -> None:
    assert find_secret(line) == what


@pytest.mark.parametrize(
    "line",
    [
        "",
        "module load cuda/12.4",
        "source ~/secrets.sh",
        "export WANDB_API_KEY=$(cat ~/.wandb_key)",
        'export WANDB_API_KEY="$(cat ~/.wandb_key)"',
        "export HF_TOKEN=$MY_TOKEN",
        "export HF_TOKEN=`cat key`",
        "export SSH_KEY_FILE=/home/me/.ssh/id",
        "export KEY_FILE=~/key",
        "export HF_TOKEN=",
        "export HF_HUB_DISABLE_IMPLICIT_TOKEN=1",
        "export TOKENIZERS_PARALLELISM=false",
        "export OMP_NUM_THREADS=4 NCCL_DEBUG=INFO",
        'curl -H "Authorization: Bearer $TOKEN" x',
        "curl https://lab.org/hooks/sweeps?name=x",
        "git checkout 0123456789012345678901234567890123456789",
        "pip install https://host/whl/torch-2.9.0-cp311-cp311-linux_x86_64.whl",
        "git clone https://me:$TOKEN@host/x",
        "curl http://[x",
        "echo token classification",
    ],
)
def test_a_line_that_reads_its_secret_elsewhere_or_has_none_is_not(line: str) -> None:
    assert find_secret(line) is None


@pytest.mark.parametrize(
    ("url", "is_secret"),
    [
        ("https://hooks.slack.com/services/T0/B0/aB3aB3aB3aB3aB3aB3", True),
        ("https://hook.site/1f0c3b1e-7f1d-4c3a-9a53-0d8e3a1b2c3d", True),
        ("https://lab.org/hook?token=abc", True),
        ("https://me:abc@lab.org/hook", True),
        ("https://lab.org/hooks/sweeps", False),
        ("http://[x", False),
    ],
)
def test_a_url_that_opens_something_by_itself_is_a_secret(url: str, is_secret: bool) -> None:
    assert looks_like_secret_url(url) == is_secret
