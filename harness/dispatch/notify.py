"""Tells the outside that a submission has ended: by a command, or by a POST to a webhook."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from harness.printable import one_line
from harness.records.files import to_json

COMMAND_TIMEOUT_S = 300.0
_WEBHOOK_TIMEOUT_S = 30.0
_PAUSES_S = (2.0, 10.0)
"""Before each further try of a webhook that can't be reached."""


class NotifyError(Exception):
    """The notice did not get out. The text never holds the URL, which may be a secret."""


def notify(settings: Mapping[str, str], summary: str, totals: Mapping[str, Any]) -> None:
    """Send what `notify` of a profile asks for.

    A command is a line of bash. It gets `totals` as JSON on its stdin, and `HARNESS_SUMMARY` and
    `HARNESS_SWEEP` in its environment. A webhook gets `totals` with `summary` as `text`, the key
    that chat services show.

    Raises:
        NotifyError: it failed.
    """
    if "command" in settings:
        _run(settings["command"], summary, totals)
    if "webhook" in settings:
        _post(_url(settings["webhook"]), to_json({"text": summary, **totals}).encode())


def _run(command: str, summary: str, totals: Mapping[str, Any]) -> None:
    env = {**os.environ, "HARNESS_SUMMARY": summary, "HARNESS_SWEEP": str(totals["sweep"])}
    try:
        done = subprocess.run(
            ["bash", "-c", command],
            input=to_json(totals).encode(),
            env=env,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotifyError(f"its command did not end within {COMMAND_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise NotifyError(f"its command can't be started: {error}") from error
    if done.returncode != 0:
        raise NotifyError(f"its command exited {done.returncode}")


def _url(text: str) -> str:
    """Return the URL in `text`, or in the variable that `$NAME` names."""
    url = text
    if text.startswith("$"):
        name = text[1:].strip("{}")
        url = os.environ.get(name, "")
        if not url:
            raise NotifyError(
                f"the variable `{name}` is not set in the finishing job; it must be set where"
                " `harness run` is typed"
            )
    if not url.startswith(("https://", "http://")):
        raise NotifyError("its webhook is no http address")
    return url


def _post(url: str, body: bytes) -> None:
    request = urllib.request.Request(
        url, data=body, headers={"Content-Type": "application/json"}, method="POST"
    )
    for pause_s in (*_PAUSES_S, None):
        try:
            with urllib.request.urlopen(request, timeout=_WEBHOOK_TIMEOUT_S):
                return
        except urllib.error.HTTPError as error:
            failure = f"its webhook answered {error.code}"
            error.close()
            if error.code < 500:
                break
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            failure = f"its webhook can't be reached: {one_line(str(reason))}".replace(url, "…")
        if pause_s is not None:
            time.sleep(pause_s)
    raise NotifyError(failure)
