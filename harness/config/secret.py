"""What looks like a secret: it must never reach a file that others read."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

_WORDS = frozenset(
    {"key", "pass", "pgpass", "pw", "pat", "auth", "credential", "credentials", "creds", "secrets"}
)
"""Parts of a name that mean a secret when they stand alone."""
_ENDINGS = (
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "accesskey",
    "secretkey",
)
"""Ends of such parts, which are also written together with what they open (`hftoken`)."""
_VALUE = r"""(?=(?P<value>"[^"]*"|'[^']*'|[^\s;&|,"']*))"""
"""What follows, looked at only: a quoted value may itself hold `NAME=value`."""
_NAMED = (
    re.compile(rf"(?<![\w$])(?P<name>[A-Za-z_][\w-]*)={_VALUE}"),
    re.compile(rf"--(?P<name>[A-Za-z][\w-]*)\s+{_VALUE}"),
    re.compile(rf"(?P<name>[A-Za-z]+(?:-[A-Za-z]+)+):\s*{_VALUE}"),
)
"""`NAME=value`, `--name value` and the header `Name-Of-It: value`."""
_AUTHORIZATION = re.compile(rf"(?i)\bauthorization:\s*(?:\w+\s+)?{_VALUE}")
_TOKENS = re.compile(
    r"(?<!\w)(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}"
    r"|wandb_v1_\w{20,})|\bwandb\s+login\s+(?:-\S+\s+)*[0-9a-f]{40}\b"
)
"""What the services that people train with hand out."""
_URL = re.compile(r"https?://[^\s\"'<>]+")
_WEBHOOK_HOSTS = ("hooks.slack.com", "discord.com", "discordapp.com", "webhook.office.com")
_SIGNATURES = frozenset({"sig", "signature", "code"})
_HARMLESS = frozenset({"", "0", "1", "true", "false", "yes", "no", "on", "off", "none", "null"})
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_-]{16,}")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATOR = re.compile(r"[^A-Za-z0-9]+")


def looks_like_secret(name: str) -> bool:
    """Whether a variable or key of that name (`WANDB_API_KEY`, `apiKey`) likely holds a secret.

    A name is judged by its parts, so that `tokens`, `path`, `author` or `monkey` are no secrets.
    """
    parts = [part.lower() for part in _SEPARATOR.split(_CAMEL.sub("_", name))]
    return any(part in _WORDS or part.endswith(_ENDINGS) for part in parts)


def find_secret(text: str) -> str | None:
    """Return what in a line of shell looks like a secret, for a message; None where nothing does.

    A value that is read where the line runs (`$(cat key)`, `$TOKEN`, a path) is none.
    """
    for pattern in _NAMED:
        for match in pattern.finditer(text):
            if looks_like_secret(match["name"]) and _is_literal(match["value"]):
                return f"`{match['name']}`"
    authorization = _AUTHORIZATION.search(text)
    if authorization is not None and _is_literal(authorization["value"]):
        return "`Authorization`"
    if _TOKENS.search(text):
        return "a token"
    for url in _URL.findall(text):
        address = _split(url)
        host = (address.hostname or "").lower()
        is_webhook = any(host == h or host.endswith(f".{h}") for h in _WEBHOOK_HOSTS)
        if _names_secret(address) or (is_webhook and _has_random_part(address)):
            return "a URL"
    return None


def looks_like_secret_url(url: str) -> bool:
    """Whether who knows this URL may use it: a password, a token, or a long random part in it."""
    address = _split(url)
    return _names_secret(address) or _has_random_part(address)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # no address at all, such as `http://[x`
        return SplitResult("", "", "", "", "")


def _names_secret(address: SplitResult) -> bool:
    named = parse_qsl(address.query) + parse_qsl(address.fragment)
    return (address.password is not None and _is_literal(address.password)) or any(
        (looks_like_secret(name) or name.lower() in _SIGNATURES) and _is_literal(value)
        for name, value in named
    )


def _has_random_part(address: SplitResult) -> bool:
    return any(_RANDOM.fullmatch(part) for part in address.path.split("/"))


def _is_literal(value: str) -> bool:
    """Whether a value stands there itself, instead of being read from somewhere."""
    bare = value.strip("\"'\\").strip()
    return bare.lower() not in _HARMLESS and not bare.startswith(("$", "`", "/", "~", "./"))
