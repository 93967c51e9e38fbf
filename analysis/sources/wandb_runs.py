"""The runs of a project on a wandb server: `entity/project?filters`."""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from analysis.sources.contents import lookup
from analysis.sources.wandb_api import (
    WandbServer,
    ask,
    config_of,
    find_server,
    split_address,
)
from harness.errors import UsageError
from harness.near import did_you_mean

_RUNS_PER_PAGE = 50
_CONFIG_FILTER = "config."
_FILTERS = ("state", "group", "tag", "display_name")

_LIST_QUERY = """
query Runs($entity: String!, $project: String!, $cursor: String, $perPage: Int!,
           $filters: JSONString) {
  project(name: $project, entityName: $entity) {
    runs(filters: $filters, after: $cursor, first: $perPage, order: "+created_at") {
      edges { node { name displayName state config group tags } }
      pageInfo { endCursor hasNextPage }
    }
  }
}
"""

Row = dict[str, Any]


def list_wandb_runs(
    address: str,
    filters: Mapping[str, str],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Return `entity/project/run_id` of the runs of `entity/project`, oldest first, each once.

    Args:
        address: may carry filters of its own, as in `entity/project?state=finished`.
        filters: `state`, `group`, `tag`, `display_name`, or `config.` and a dotted key. A run has
            to pass all of them; config values are compared as JSON, else as text.
        sleep: waits between tries.

    Raises:
        UsageError: a filter is not known, nothing passes, or as for `read_wandb_online`.
        HarnessError: as for `read_wandb_online`.
    """
    place, _, query = address.partition("?")
    entity, project = split_address(place, 2, "entity/project")
    filters = {**dict(urllib.parse.parse_qsl(query, keep_blank_values=True)), **filters}
    for name in filters:
        if name not in _FILTERS and not name.startswith(_CONFIG_FILTER):
            known = [*_FILTERS, f"{_CONFIG_FILTER}KEY"]
            raise UsageError(f"no filter `{name}` for runs of wandb", did_you_mean(name, known))
    server = find_server(sleep=sleep)
    found: dict[str, None] = {}
    num_seen = 0
    cursor: str | None = None
    while True:
        page = _ask_for_page(server, entity, project, cursor, filters)
        for edge in page["edges"]:
            num_seen += 1
            # Pages shift while runs are being made: a run may come again.
            if _passes(edge["node"], filters):
                found[edge["node"]["name"]] = None
        info = page["pageInfo"]
        # A cursor that stands still would be an endless listing.
        if not info["hasNextPage"] or info["endCursor"] in (None, cursor):
            break
        cursor = info["endCursor"]
    if not found:
        given = "&".join(f"{name}={value}" for name, value in filters.items())
        raise UsageError(
            f"no run of `{entity}/{project}` passes `{given}`"
            if given
            else f"`{entity}/{project}` has no runs",
            f"{num_seen} runs were looked at" if given else "",
        )
    return [f"{entity}/{project}/{run_id}" for run_id in found]


def _ask_for_page(
    server: WandbServer,
    entity: str,
    project: str,
    cursor: str | None,
    filters: Mapping[str, str],
) -> Row:
    # Config filters are left to this side: their spelling depends on the server's version.
    on_server: Row = {name: filters[name] for name in _FILTERS if name in filters}
    if "tag" in on_server:
        on_server["tags"] = {"$in": [on_server.pop("tag")]}
    variables = {
        "entity": entity,
        "project": project,
        "cursor": cursor,
        "perPage": _RUNS_PER_PAGE,
        "filters": json.dumps(on_server),
    }
    page = lookup(ask(server, _LIST_QUERY, variables), "project.runs")
    if not isinstance(page, dict):
        raise UsageError(
            f"wandb at `{server.host}` has no project `{entity}/{project}`",
            "check entity and project, and that the API key may read them",
        )
    return page


def _passes(node: Mapping[str, Any], filters: Mapping[str, str]) -> bool:
    config = config_of(node)
    for name, text in filters.items():
        if name.startswith(_CONFIG_FILTER):
            key = name.removeprefix(_CONFIG_FILTER)
            value = config[key] if key in config else lookup(config, key)
            if not _equals(value, text):
                return False
        elif name == "tag":
            if text not in (node.get("tags") or []):
                return False
        elif node.get("displayName" if name == "display_name" else name) != text:
            return False
    return True


def _equals(value: Any, text: str) -> bool:
    if isinstance(value, str):
        return value == text
    try:
        wanted = json.loads(text)
    except ValueError:
        return False
    return (type(wanted) is type(value) and wanted == value) or (
        isinstance(value, float) and isinstance(wanted, int) and value == wanted
    )
