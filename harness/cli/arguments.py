"""What the verbs take. Only argparse is loaded here."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from harness.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are UsageErrors instead of an exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        (file or sys.stdout).write(self.format_help())  # argparse's own hides what fails


def add_compose(parser: Parser) -> None:
    _overrides(parser)
    parser.add_argument(
        "--diff",
        metavar='"KEY=VALUE …"',
        help="show what differs from the configuration with these overrides",
    )
    _as_json(parser)


def add_plan(parser: Parser) -> None:
    _sweep(parser)
    _overrides(parser)
    _as_name(parser)
    _profile(parser, "plan for this profile: its arrays, resources and GPU-hours")
    _max_gpu_hours(parser)
    _as_json(parser)


def add_run(parser: Parser) -> None:
    _sweep(parser)
    _overrides(parser)
    _as_name(parser)
    _profile(parser, "where to run: a profile's name or file (default: local)", default="local")
    parser.add_argument("--slots", type=_positive, help="runs at a time, on the local queue")
    _handing_over(parser)
    parser.add_argument(
        "--reuse-across-code",
        action="store_true",
        help="keep finished runs that other code made",
    )
    _without_report(parser)
    _dry_run(parser)


def add_import_toml(parser: Parser) -> None:
    parser.add_argument(
        "base",
        metavar="BASE",
        type=Path,
        help="what the arms share: TOML, JSON or YAML of prime-rl",
    )
    parser.add_argument(
        "overlays",
        metavar="OVERLAY",
        nargs="+",
        type=Path,
        help="a file with one loss; it names its arm, and the first is the baseline",
    )
    parser.add_argument(
        "--name", metavar="NAME", help="what the question calls the recipe (default: the base)"
    )
    parser.add_argument(
        "--seeds", dest="num_seeds", metavar="N", type=_positive, default=3, help="runs per arm"
    )
    parser.add_argument(
        "--to", metavar="FILE", type=Path, help="write the sweep to this new file, not to stdout"
    )


def add_retry(parser: Parser) -> None:
    _sweep(parser)
    _target(parser)
    _profile(parser, "where to run (default: where the runs were submitted last)")
    _handing_over(parser)
    _without_report(parser)
    _dry_run(parser)


def add_status(parser: Parser) -> None:
    _sweep(parser)
    _target(parser)
    parser.add_argument(
        "--state",
        dest="wanted",
        metavar="STATE[,STATE]",
        help="only runs in these states, such as failed,lost",
    )
    parser.add_argument("--watch", action="store_true", help="show it live, until Ctrl-C")
    _as_json(parser)


def add_logs(parser: Parser) -> None:
    _sweep(parser)
    _run_target(parser)
    parser.add_argument(
        "--of", dest="part", metavar="PART", help="a part with a log of its own, such as trainer"
    )
    parser.add_argument("-n", "--tail", type=_positive, default=200, help="how many last lines")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as the log grows")


def add_why(parser: Parser) -> None:
    _sweep(parser)
    _run_target(parser)
    _as_json(parser)


def add_cancel(parser: Parser) -> None:
    _sweep(parser)
    _target(parser)
    _dry_run(parser)


def add_diff(parser: Parser) -> None:
    _sweep(parser)
    parser.add_argument("first", metavar="ARM", help="the arm to compare with")
    parser.add_argument("second", metavar="ARM", help="the arm that is compared")
    _as_json(parser)


def add_report(parser: Parser) -> None:
    _sweep(parser)
    parser.add_argument("--watch", action="store_true", help="write it anew while runs go on")
    parser.add_argument(
        "--every", metavar="S", type=_seconds, default=60.0, help="with --watch: seconds between"
    )
    _reporting(parser)
    _as_json(parser)


def add_compare(parser: Parser) -> None:
    parser.add_argument(
        "--arm",
        dest="sources",
        metavar="ARM=SOURCE",
        action="append",
        required=True,
        help="one run of an arm: a path, wandb:ENTITY/PROJECT/ID or tb:DIR; repeat it per run",
    )
    parser.add_argument(
        "--baseline", metavar="ARM", required=True, help="the arm that the others are compared with"
    )
    parser.add_argument(
        "--key",
        dest="keys",
        metavar="METRIC=KEY",
        action="append",
        default=[],
        help="the key or column that holds a metric, or `step` or `time`",
    )
    parser.add_argument(
        "--analysis",
        dest="analysis_values",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="how it is judged, as in a sweep's `analysis:` (last_steps=100)",
    )
    parser.add_argument(
        "--pairing", choices=("none", "seed"), default="none", help="whether seeds pair runs"
    )
    parser.add_argument(
        "--max-steps", metavar="N", type=_positive, help="steps that every run was to make"
    )
    parser.add_argument(
        "--may-differ",
        metavar="KEY",
        action="append",
        default=[],
        help="a config key in which arms may differ, beside those of the loss",
    )
    parser.add_argument("--question", default="", help="what the comparison is to answer")
    parser.add_argument("--name", default="comparison", help="what the comparison is called")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="where the report goes (default: ./NAME)"
    )
    parser.add_argument(
        "--into-run-folder",
        action="store_true",
        help="also put the report into `reports/` of every run's own folder, once it has finished",
    )
    _reporting(parser)
    _as_json(parser)


def _reporting(parser: Parser) -> None:
    parser.add_argument(
        "--fail-if",
        dest="gates",
        metavar="PREDICATE",
        action="append",
        default=[],
        help="exit with 3 if it holds, with 4 if it can't be decided: "
        'worse("ipo", "icepop", "solve_rate", margin=0.05), collapsed("ipo"), ...',
    )
    parser.add_argument(
        "--noise-from",
        metavar="SWEEP",
        action="append",
        default=[],
        help="a sweep whose seeds tell how much single runs scatter; for arms with one seed",
    )
    parser.add_argument(
        "--wandb",
        dest="wandb_project",
        metavar="[ENTITY/]PROJECT",
        help="also log the report and its tables to Weights & Biases",
    )


def add_replay(parser: Parser) -> None:
    parser.add_argument(
        "paths",
        metavar="TOKENS",
        nargs="+",
        type=Path,
        help="a sweep's name or folder, a run folder, or files of token records",
    )
    parser.add_argument(
        "--rule",
        dest="rules",
        metavar="RULE",
        action="append",
        default=[],
        help="a mask to replay: ipo:eps=0.3, icepop:ratio_low=0.2,ratio_high=5; repeat it per rule",
    )
    parser.add_argument(
        "--curve",
        dest="curves",
        metavar="CURVE",
        action="append",
        default=[],
        help="a range of one knob: ipo:eps=0.01..1.0; may be repeated",
    )
    parser.add_argument(
        "--columns",
        metavar="trainer=COLUMN,inference=COLUMN[,…]",
        default="",
        help="which columns of a file hold what",
    )
    parser.add_argument(
        "--probabilities",
        action="store_true",
        help="these columns hold probabilities, not log-probabilities",
    )
    parser.add_argument(
        "--unstable-ok", action="store_true", help="also read steps without a completion marker"
    )
    parser.add_argument(
        "--max-share",
        metavar="SHARE",
        type=_share,
        default=0.001,
        help="a recommended threshold masks at most this share of the tokens (default: 0.001)",
    )
    parser.add_argument(
        "--moved",
        metavar="CHANGE",
        type=_share,
        default=0.3,
        help="and every token whose probability moved by more than this (default: 0.3)",
    )
    parser.add_argument(
        "--window-steps", metavar="N", type=_positive, help="steps per row of the table by step"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("replay"),
        help="where the replay goes (default: ./replay)",
    )
    _profile(parser, "count runs and files as jobs of this profile")
    _as_json(parser)


def add_clean(parser: Parser) -> None:
    _sweep(parser)
    parser.add_argument("--left", action="store_true", help="also remove runs that left the plan")
    _dry_run(parser)


def add_doctor(parser: Parser) -> None:
    _profile(parser, "also check this profile against its cluster")
    parser.add_argument(
        "--probe",
        action="store_true",
        help="also run a job of one minute on the cluster, and check what it finds there",
    )
    _as_json(parser)


def _sweep(parser: Parser) -> None:
    parser.add_argument("sweep", metavar="SWEEP", help="a sweep file, or a sweep's name")


def _target(parser: Parser) -> None:
    parser.add_argument(
        "target", metavar="ARM[/SEED]", nargs="?", help="one arm or run; all without it"
    )


def _run_target(parser: Parser) -> None:
    parser.add_argument("target", metavar="ARM/SEED", help="one run, such as ipo/0")


def _overrides(parser: Parser) -> None:
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


def _as_name(parser: Parser) -> None:
    parser.add_argument(
        "--as", dest="as_name", metavar="NAME", help="give the changed sweep a name of its own"
    )


def _profile(parser: Parser, help_text: str, *, default: str | None = None) -> None:
    parser.add_argument(
        "--on", dest="profile_name", metavar="PROFILE", default=default, help=help_text
    )


def _handing_over(parser: Parser) -> None:
    parser.add_argument(
        "--detach",
        action="store_true",
        help="return once the runs are handed over; they go on by themselves",
    )
    _max_gpu_hours(parser)
    parser.add_argument(
        "--live-code",
        action="store_true",
        help="run the harness as it is installed when a run starts, not a frozen copy",
    )


def _max_gpu_hours(parser: Parser) -> None:
    parser.add_argument(
        "--max-gpu-hours",
        metavar="H",
        type=_hours,
        help="refuse if the runs could take more GPU-hours than this",
    )


def _without_report(parser: Parser) -> None:
    parser.add_argument(
        "--no-report", dest="with_report", action="store_false", help="do not write the report"
    )


def _as_json(parser: Parser) -> None:
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON to stdout")


def _dry_run(parser: Parser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would happen; change nothing"
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and up to 1")
    return share


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not (math.isfinite(hours) and hours >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours")
    return hours
