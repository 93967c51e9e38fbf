from __future__ import annotations

import pytest

from harness.config.secret import looks_like_secret


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
