"""Questions to a wandb server: GraphQL over HTTPS, with retries that end.

wandb's own client is not used: up to 0.22 it retries by rules of its own, and since 0.27 its
history reader runs in a helper process whose retries can't be bounded from outside.
"""

from __future__ import annotations

import base64
import http.client
import json
import netrc
import os
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UsageError

DEFAULT_BASE_URL = "https://api.wandb.ai"

MAX_TRIES = 5
"""How often one question is asked before it counts as failed."""

MAX_WAIT_S = 60.0
_TIMEOUT_S = 60.0
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
_MAX_MESSAGE = 200

_KEY_HINT = "set WANDB_API_KEY, or run `wandb login`; WANDB_BASE_URL names a server of your own"


@dataclass(frozen=True)
class WandbServer:
    """Where to ask, and who asks.

    Attributes:
        sleep: waits a number of seconds between tries.
    """

    base_url: str
    api_key: str = field(repr=False)
    sleep: Callable[[float], None] = time.sleep

    @property
    def host(self) -> str:
        return urllib.parse.urlsplit(self.base_url).hostname or self.base_url


def find_server(
    *,
    environment: Mapping[str, str] = os.environ,
    sleep: Callable[[float], None] = time.sleep,
) -> WandbServer:
    """Return the server that the environment names, with the key from there or from netrc.

    Raises:
        UsageError: there is no key, or the address is no address.
    """
    base_url = (environment.get("WANDB_BASE_URL") or DEFAULT_BASE_URL).rstrip("/")
    parts = urllib.parse.urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise UsageError(
            "WANDB_BASE_URL is no address of a server", f"it looks like {DEFAULT_BASE_URL}"
        )
    key = environment.get("WANDB_API_KEY") or _netrc_password(parts.hostname, environment)
    if not key:
        raise UsageError(f"there is no API key for wandb at `{parts.hostname}`", _KEY_HINT)
    return WandbServer(base_url, key, sleep)


def ask(server: WandbServer, document: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `data` of a GraphQL answer.

    Answers that say "later" (429, 5xx) and broken connections are tried again, `MAX_TRIES` times
    in all; `Retry-After` is honoured up to `MAX_WAIT_S`.

    Raises:
        UsageError: the key is not accepted, or may not read what is asked for.
        HarnessError: no answer, or none that can be used.
    """
    body = json.dumps({"query": document, "variables": dict(variables)}).encode()
    for number in range(1, MAX_TRIES + 1):
        try:
            return _parse(server, _post(server, body))
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in _RETRIED:
                    raise _refused(server, error) from None
                problem = f"answered {error.code}"
                wait_s = _retry_after(error.headers.get("Retry-After"))
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            problem, wait_s = f"can't be reached ({reason})", None
            if isinstance(reason, socket.gaierror):
                break
        if number < MAX_TRIES:
            server.sleep(min(MAX_WAIT_S, 2.0 ** (number - 1) if wait_s is None else wait_s))
    tries = "1 try" if number == 1 else f"{number} tries"
    raise HarnessError(
        f"wandb at `{server.host}` {problem}, after {tries}",
        "check the network and WANDB_BASE_URL, or try again later",
    )


def split_address(address: str, count: int, shape: str) -> list[str]:
    """Return the parts of an address, which may be that of a page of the web app."""
    path = urllib.parse.urlsplit(address).path if "://" in address else address
    parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
    if len(parts) == 4 and parts[2] == "runs":
        del parts[2]
    if len(parts) != count or not all(parts):
        raise UsageError(f"`{address}` is no address of wandb", f"it looks like `{shape}`")
    return parts


def config_of(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's config: the server wraps every value, with a description."""
    return {
        key: entry["value"] if isinstance(entry, dict) and "value" in entry else entry
        for key, entry in json_object(node.get("config")).items()
        if key not in ("_wandb", "wandb_version")
    }


def json_object(value: Any) -> dict[str, Any]:
    """Return a JSON object that the server sends as such, or as text; empty for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Lets a redirect fail: it would carry the key to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _post(server: WandbServer, body: bytes) -> bytes:
    credentials = base64.b64encode(f"api:{server.api_key}".encode()).decode()
    request = urllib.request.Request(
        f"{server.base_url}/graphql",
        data=body,
        headers={
            "Authorization": f"Basic {credentials}",
            "Content-Type": "application/json",
            "User-Agent": "ablation-harness",
        },
    )
    opener = urllib.request.build_opener(_NoRedirect)
    with opener.open(request, timeout=_TIMEOUT_S) as response:
        content: bytes = response.read()
    return content


def _parse(server: WandbServer, content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise HarnessError(
            f"`{server.host}` does not answer as a wandb server does", "check WANDB_BASE_URL"
        )
    if answer.get("errors"):
        raise HarnessError(f"wandb at `{server.host}` says: {_first_message(server, answer)}")
    data = answer.get("data")
    return data if isinstance(data, dict) else {}


def _refused(server: WandbServer, error: urllib.error.HTTPError) -> HarnessError:
    where = f"wandb at `{server.host}`"
    if error.code == 401:
        return UsageError(f"{where} does not accept the API key", _KEY_HINT)
    if error.code == 403:
        return UsageError(f"{where} does not let this API key read that", _KEY_HINT)
    if error.code == 404:
        return UsageError(f"{where} has no such thing", "check entity, project and run id")
    try:
        answer = json.loads(error.read())
    except (ValueError, OSError):
        answer = {}
    message = _first_message(server, answer if isinstance(answer, dict) else {})
    return HarnessError(f"{where} answered {error.code}: {message}")


def _first_message(server: WandbServer, answer: Mapping[str, Any]) -> str:
    errors = answer.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else errors
    text = first.get("message") if isinstance(first, dict) else first
    line = " ".join(str(text or "no reason given").split())[:_MAX_MESSAGE]
    # A server may well repeat what it was sent.
    return line.replace(server.api_key, "…")


def _retry_after(header: str | None) -> float | None:
    """Return the seconds to wait; None where the header is missing or names a date."""
    try:
        return max(0.0, float(header)) if header is not None else None
    except ValueError:
        return None


def _netrc_password(host: str, environment: Mapping[str, str]) -> str | None:
    named = environment.get("NETRC")
    for path in [Path(named)] if named else [Path.home() / ".netrc", Path.home() / "_netrc"]:
        try:
            found = netrc.netrc(path).authenticators(host)
        except (OSError, netrc.NetrcParseError):
            continue
        if found and found[2]:
            return found[2]
    return None
