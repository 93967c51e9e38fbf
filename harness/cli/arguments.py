"""What the verbs take that plan, run and inspect. Only argparse is loaded here."""

from __future__ import annotations

from pathlib import Path

from harness.cli.argument_values import positive
from harness.cli.shared_arguments import (
    Parser,
    take_as_name,
    take_dry_run,
    take_handing_over,
    take_json,
    take_max_gpu_hours,
    take_overrides,
    take_profile,
    take_run,
    take_sweep,
    take_target,
    take_without_report,
)


def add_compose(parser: Parser) -> None:
    take_overrides(parser)
    parser.add_argument(
        "--diff",
        metavar='"KEY=VALUE …"',
        help="show what differs from the configuration with these overrides",
    )
    take_json(parser)


def add_plan(parser: Parser) -> None:
    take_sweep(parser)
    take_overrides(parser)
    take_as_name(parser)
    take_profile(parser, "plan for this profile: its arrays, resources and GPU-hours")
    take_max_gpu_hours(parser)
    take_json(parser)


def add_run(parser: Parser) -> None:
    take_sweep(parser)
    take_overrides(parser)
    take_as_name(parser)
    take_profile(parser, "where to run: a profile's name or file (default: local)", default="local")
    parser.add_argument("--slots", type=positive, help="runs at a time, on the local queue")
    take_handing_over(parser)
    parser.add_argument(
        "--reuse-across-code",
        action="store_true",
        help="keep finished runs that other code made",
    )
    take_without_report(parser)
    take_dry_run(parser)


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
        "--seeds", dest="num_seeds", metavar="N", type=positive, default=3, help="runs per arm"
    )
    parser.add_argument(
        "--to", metavar="FILE", type=Path, help="write the sweep to this new file, not to stdout"
    )


def add_retry(parser: Parser) -> None:
    take_sweep(parser)
    take_target(parser)
    take_profile(parser, "where to run (default: where the runs were submitted last)")
    take_handing_over(parser)
    take_without_report(parser)
    take_dry_run(parser)


def add_status(parser: Parser) -> None:
    take_sweep(parser)
    take_target(parser)
    parser.add_argument(
        "--state",
        dest="wanted",
        metavar="STATE[,STATE]",
        help="only runs in these states, such as failed,lost",
    )
    parser.add_argument("--watch", action="store_true", help="show it live, until Ctrl-C")
    take_json(parser)


def add_logs(parser: Parser) -> None:
    take_sweep(parser)
    take_run(parser)
    parser.add_argument(
        "--of", dest="part", metavar="PART", help="a part with a log of its own, such as trainer"
    )
    parser.add_argument("-n", "--tail", type=positive, default=200, help="how many last lines")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as the log grows")


def add_why(parser: Parser) -> None:
    take_sweep(parser)
    take_run(parser)
    take_json(parser)


def add_cancel(parser: Parser) -> None:
    take_sweep(parser)
    take_target(parser)
    take_dry_run(parser)


def add_diff(parser: Parser) -> None:
    take_sweep(parser)
    parser.add_argument("first", metavar="ARM", help="the arm to compare with")
    parser.add_argument("second", metavar="ARM", help="the arm that is compared")
    take_json(parser)


def add_clean(parser: Parser) -> None:
    take_sweep(parser)
    parser.add_argument("--left", action="store_true", help="also remove runs that left the plan")
    take_dry_run(parser)


def add_doctor(parser: Parser) -> None:
    take_profile(parser, "also check this profile against its cluster")
    parser.add_argument(
        "--probe",
        action="store_true",
        help="also run a job of one minute on the cluster, and check what it finds there",
    )
    take_json(parser)
