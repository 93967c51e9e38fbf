"""What the README says exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from harness.cli.app import VERBS, Parser
from harness.config.conf_dir import load_conf
from harness.records.model import CodeRecord
from harness.resources import CONF_DIR
from harness.sweep.plan import build_plan
from harness.sweep.spec import load_sweep

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ harness ([^#\n]+)", README, re.MULTILINE)


def test_every_relative_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) > 3
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_one_that_the_command_line_takes(command: str) -> None:
    name, *arguments = shlex.split(command)
    parser = Parser(prog=f"harness {name}", allow_abbrev=False)
    VERBS[name].add_arguments(parser)
    parser.parse_intermixed_args(arguments)


def test_the_readme_shows_commands_for_every_verb() -> None:
    assert {command.split()[0] for command in COMMANDS} == set(VERBS)


def test_the_sweep_in_the_readme_plans(tmp_path: Path) -> None:
    block = next(b for b in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "baseline:" in b)
    path = tmp_path / "readme.yaml"
    path.write_text(block)
    code = CodeRecord(hash="abc", commit=None, is_dirty=None, versions={})
    assert len(build_plan(load_sweep(path), load_conf((CONF_DIR,)), (), code).record.runs) == 8


def test_every_loss_stands_in_the_table_of_losses() -> None:
    section = README.split("## Losses")[1].split("## ")[0]
    named = set(re.findall(r"`([a-z_]+)`", "\n".join(section.splitlines())))
    assert set(load_conf((CONF_DIR,)).options["loss"]) <= named
