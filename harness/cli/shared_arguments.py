"""What several verbs take. Only argparse is loaded here."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from harness.cli.argument_values import hours
from harness.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are UsageErrors instead of an exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        (file or sys.stdout).write(self.format_help())  # argparse's own hides what fails


def take_sweep(parser: Parser) -> None:
    parser.add_argument("sweep", metavar="SWEEP", help="a sweep file, or a sweep's name")


def take_target(parser: Parser) -> None:
    parser.add_argument(
        "target", metavar="ARM[/SEED]", nargs="?", help="one arm or run; all without it"
    )


def take_run(parser: Parser) -> None:
    parser.add_argument("target", metavar="ARM/SEED", help="one run, such as ipo/0")


def take_overrides(parser: Parser) -> None:
    parser.add_argument(
        "overrides",
        metavar="KEY=VALUE",
        nargs="*",
        default=[],  # without one argparse calls it required
        help="options of groups (loss=ipo) and values (max_steps=100)",
    )
    parser.add_argument(
        "--conf",
        dest="conf_dirs",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="a folder of further options; may be repeated",
    )


def take_as_name(parser: Parser) -> None:
    parser.add_argument(
        "--as", dest="as_name", metavar="NAME", help="give the changed sweep a name of its own"
    )


def take_profile(parser: Parser, help_text: str, *, default: str | None = None) -> None:
    parser.add_argument(
        "--on", dest="profile_name", metavar="PROFILE", default=default, help=help_text
    )


def take_handing_over(parser: Parser) -> None:
    parser.add_argument(
        "--detach",
        action="store_true",
        help="return once the runs are handed over; they go on by themselves",
    )
    take_max_gpu_hours(parser)
    parser.add_argument(
        "--live-code",
        action="store_true",
        help="run the harness as it is installed when a run starts, not a frozen copy",
    )


def take_max_gpu_hours(parser: Parser) -> None:
    parser.add_argument(
        "--max-gpu-hours",
        metavar="H",
        type=hours,
        help="refuse if the runs could take more GPU-hours than this",
    )


def take_without_report(parser: Parser) -> None:
    parser.add_argument(
        "--no-report", dest="with_report", action="store_false", help="do not write the report"
    )


def take_json(parser: Parser) -> None:
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON to stdout")


def take_dry_run(parser: Parser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would happen; change nothing"
    )
