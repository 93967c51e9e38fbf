"""A STAND-IN for a wandb server: it answers the four questions that the reader asks, from memory.

It is no wandb server and proves nothing about one: questions and answers have the shapes that were
read in the source of wandb's own clients (0.22.3 and 0.31.0). Like the real one, it only gives
rows that hold all keys of a question, thins out a range that holds more rows than were asked for,
and pages listings so that a run may come twice. Every answer says in a header that it is a
stand-in.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

API_KEY = "stand-in-key-that-must-never-be-shown"
ENTITY = "stand-in-entity"
PROJECT = "losses"

Row = dict[str, Any]


@dataclass
class StandInRun:
    """A run on the server.

    Attributes:
        rows: of the history, with `_step` and `_timestamp`.
        has_keys: whether the server lists the keys of the run.
        fails_with: status that every question about the history gets.
    """

    run_id: str
    rows: list[Row] = field(default_factory=list)
    config: Mapping[str, Any] = field(default_factory=dict)
    state: str = "finished"
    display_name: str = "a name"
    group: str = "a group"
    tags: tuple[str, ...] = ()
    heartbeat: str = "2026-11-01T00:00:00"
    has_keys: bool = True
    fails_with: int | None = None

    def describe(self) -> Row:
        config = {key: {"value": value, "desc": None} for key, value in self.config.items()}
        types: dict[str, Counter[str]] = {}
        for row in self.rows:
            for key, value in row.items():
                kind = "string" if isinstance(value, str) else "number"
                types.setdefault(key, Counter())[kind] += 1
        keys = {
            key: {"typeCounts": [{"type": kind, "count": n} for kind, n in counts.items()]}
            for key, counts in types.items()
        }
        last = max((row["_step"] for row in self.rows), default=-1)
        return {
            "name": self.run_id,
            "displayName": self.display_name,
            "state": self.state,
            "group": self.group,
            "tags": list(self.tags),
            "commit": None,
            "config": json.dumps({**config, "_wandb": {"value": {"cli_version": "0.31.0"}}}),
            "heartbeatAt": self.heartbeat,
            "historyLineCount": len(self.rows),
            "historyKeys": {"keys": keys, "lastStep": last} if self.has_keys else None,
            "summaryMetrics": json.dumps({"_step": last}),
        }


@dataclass
class StandInServer:
    """What the server holds, how it misbehaves next, and what it was asked.

    Attributes:
        failures: (status, headers) of the next answers, before it answers properly.
        body: what it answers instead of JSON; None for proper answers.
        asked: names of the operations, in order, failed ones included.
    """

    runs: list[StandInRun]
    base_url: str = ""
    failures: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    body: bytes | None = None
    asked: list[str] = field(default_factory=list)
    filters: list[Row] = field(default_factory=list)

    def answer(self, operation: str, variables: Row) -> tuple[int, Row]:
        if (variables["entity"], variables["project"]) != (ENTITY, PROJECT):
            return 200, {"data": {"project": None}}
        if operation == "Runs":
            return 200, {"data": {"project": {"runs": self._page(variables)}}}
        run = next((run for run in self.runs if run.run_id == variables["run"]), None)
        if run is None:
            return 200, {"data": {"project": {"run": None}}}
        if operation == "Run":
            return 200, {"data": {"project": {"run": run.describe()}}}
        if run.fails_with is not None:
            return run.fails_with, {"errors": [{"message": f"poisoned, said {API_KEY}"}]}
        if operation == "HistoryPage":
            spec = {
                "keys": [],
                "minStep": variables["minStep"],
                "maxStep": variables["maxStep"],
                "samples": variables["pageSize"],
            }
            found: Row = {"history": [json.dumps(row) for row in _sample(run, spec)]}
        else:
            specs = [json.loads(text) for text in variables["specs"]]
            found = {"sampledHistory": [_sample(run, spec) for spec in specs]}
        return 200, {"data": {"project": {"run": found}}}

    def _page(self, variables: Row) -> Row:
        filters = json.loads(variables["filters"])
        self.filters.append(filters)
        names = {"state": "state", "group": "group", "display_name": "display_name"}
        passing = [
            run
            for run in self.runs
            if all(
                getattr(run, name) == filters[key] for key, name in names.items() if key in filters
            )
            and set(filters.get("tags", {}).get("$in", run.tags)) & set(run.tags or ("",)) | {""}
        ]
        # A run was made between two pages: the second begins with the last run of the first.
        begin = max(0, int(variables["cursor"] or 0) - 1)
        end = begin + variables["perPage"]
        return {
            "edges": [{"node": run.describe()} for run in passing[begin:end]],
            "pageInfo": {"endCursor": str(end), "hasNextPage": end < len(passing)},
        }


def _sample(run: StandInRun, spec: Row) -> list[Row]:
    keys = spec["keys"]
    rows = [
        {key: row[key] for key in keys} if keys else row
        for row in run.rows
        if spec["minStep"] <= row["_step"] < spec["maxStep"] and all(key in row for key in keys)
    ]
    thinned = -(-len(rows) // spec["samples"])
    return rows[:: max(1, thinned)]


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandInServer

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        question = json.loads(content)
        named = re.match(r"\s*query (\w+)", question["query"])
        assert named is not None
        server = self.stand_in
        server.asked.append(named.group(1))
        expected = base64.b64encode(f"api:{API_KEY}".encode()).decode()
        if server.failures:
            status, headers = server.failures.pop(0)
            self._reply(status, b'{"errors": [{"message": "later"}]}', headers)
        elif self.headers["Authorization"] != f"Basic {expected}":
            self._reply(401, b"{}")
        elif server.body is not None:
            self._reply(200, server.body)
        else:
            code, answer = server.answer(named.group(1), question["variables"])
            self._reply(code, json.dumps(answer).encode())

    def _reply(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("X-Stand-In", "this is no wandb server")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the tests look at `asked`."""


@contextmanager
def serve(*runs: StandInRun) -> Iterator[StandInServer]:
    """Serve `runs` on a local port for the length of the block."""
    server = StandInServer(list(runs))
    handler = type("Handler", (_Handler,), {"stand_in": server})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        server.base_url = f"http://127.0.0.1:{listener.server_port}"
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()
