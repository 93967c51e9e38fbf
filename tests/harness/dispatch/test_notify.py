from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import harness.dispatch.notify as notify_module
from harness.dispatch.notify import NotifyError, notify

TOTALS = {"sweep": "toy", "states": {"done": 3, "failed": 1}}
SUMMARY = "toy: 3 done, 1 failed"


@dataclass
class Hook:
    """A web server that notes what is posted, and answers with `codes` in turn, then 200."""

    url: str = ""
    codes: list[int] = field(default_factory=list)
    posted: list[tuple[str, str, dict[str, object]]] = field(default_factory=list)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    found = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.posted.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(found.codes.pop(0) if found.codes else 200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/T0/secret"
    monkeypatch.setattr(notify_module, "_PAUSES_S", (0.0, 0.0))
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def test_webhook_gets_the_totals_and_a_line_of_text(hook: Hook) -> None:
    notify({"webhook": hook.url}, SUMMARY, TOTALS)
    assert hook.posted == [("/T0/secret", "application/json", {"text": SUMMARY, **TOTALS})]


@pytest.mark.parametrize("written", ["$MY_HOOK", "${MY_HOOK}"])
def test_webhook_is_read_from_the_environment_when_it_is_sent(
    hook: Hook, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_HOOK", hook.url)
    notify({"webhook": written}, SUMMARY, TOTALS)
    assert len(hook.posted) == 1


def test_webhook_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_HOOK", raising=False)
    with pytest.raises(NotifyError, match="the variable `MY_HOOK` is not set"):
        notify({"webhook": "$MY_HOOK"}, SUMMARY, TOTALS)


def test_webhook_is_tried_again_while_the_server_is_at_fault(hook: Hook) -> None:
    hook.codes = [502, 503]
    notify({"webhook": hook.url}, SUMMARY, TOTALS)
    assert len(hook.posted) == 3


def test_webhook_that_refuses_is_tried_once_and_its_address_is_not_told(hook: Hook) -> None:
    hook.codes = [404, 404]
    with pytest.raises(NotifyError, match=r"^its webhook answered 404$"):
        notify({"webhook": hook.url}, SUMMARY, TOTALS)
    assert len(hook.posted) == 1


def test_webhook_that_cannot_be_reached_does_not_tell_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notify_module, "_PAUSES_S", ())
    with pytest.raises(NotifyError, match="can't be reached") as failure:
        notify({"webhook": "http://127.0.0.1:9/T0/secret"}, SUMMARY, TOTALS)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/y", "/x"])
def test_variable_that_holds_no_web_address_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_HOOK", url)
    with pytest.raises(NotifyError, match="no http address"):
        notify({"webhook": "$MY_HOOK"}, SUMMARY, TOTALS)


def test_command_gets_the_totals_and_the_summary(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = f"""{{ cat; echo "$HARNESS_SWEEP: $HARNESS_SUMMARY"; }} > '{out}'"""
    notify({"command": command}, SUMMARY, TOTALS)
    text = out.read_text()
    assert json.loads(text[: text.rindex("}") + 1]) == TOTALS
    assert text.endswith(f"toy: {SUMMARY}\n")


def test_command_that_does_not_read_is_fine() -> None:
    notify({"command": "true"}, SUMMARY, {**TOTALS, "runs": "x" * 1_000_000})


@pytest.mark.parametrize(("command", "said"), [("exit 3", "exited 3"), ("no_such_tool", "127")])
def test_command_that_fails_is_an_error(command: str, said: str) -> None:
    with pytest.raises(NotifyError, match=said):
        notify({"command": command}, SUMMARY, TOTALS)


def test_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify_module, "COMMAND_TIMEOUT_S", 0.2)
    with pytest.raises(NotifyError, match="did not end within"):
        notify({"command": "exec sleep 60"}, SUMMARY, TOTALS)
