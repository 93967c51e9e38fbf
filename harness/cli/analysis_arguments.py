"""What the verbs take that judge runs or plan how many. Only argparse is loaded here."""

from __future__ import annotations

from pathlib import Path

from harness.cli.argument_values import (
    hours,
    positive,
    power,
    seconds,
    seed_counts,
    share,
    share_or_0,
)
from harness.cli.shared_arguments import (
    Parser,
    take_json,
    take_profile,
    take_sweep,
)


def add_power(parser: Parser) -> None:
    take_sweep(parser)
    parser.add_argument(
        "--from",
        dest="sources",
        metavar="RUNS",
        action="append",
        default=[],
        help="runs that tell noise, collapses and cost: a sweep's name or folder, or ARM=SOURCE as"
        " `harness compare` takes it; may be repeated",
    )
    parser.add_argument(
        "--sd",
        dest="sds",
        metavar="METRIC=X",
        action="append",
        default=[],
        help="the standard deviation between seeds of one arm, of natural logs for ratios"
        " (mismatch_kl); may be repeated",
    )
    parser.add_argument(
        "--share", metavar="X", type=share_or_0, help="the share of the baseline that collapses"
    )
    parser.add_argument(
        "--to",
        dest="targets",
        metavar="METRIC=D",
        action="append",
        default=[],
        help="tell the seeds that find this difference (default: the sweep's margin in solve_rate,"
        " a ratio of 2 in mismatch_kl, 0.5 in collapsed); may be repeated",
    )
    parser.add_argument(
        "--power", type=power, default=0.8, help="how often it is to be found (default: 0.8)"
    )
    parser.add_argument(
        "--seeds", metavar="N[,N]", type=seed_counts, help="seeds per arm to show, such as 3,4,6-9"
    )
    take_profile(parser, "tell GPU-hours by the limits of this profile")
    parser.add_argument(
        "--gpu-hours-per-run", metavar="X", type=hours, help="tell GPU-hours from this"
    )
    parser.add_argument(
        "--plot", metavar="FILE", type=Path, help="also draw it: FILE.png or FILE.svg"
    )
    take_json(parser)


def add_stop_check(parser: Parser) -> None:
    take_sweep(parser)
    parser.add_argument(
        "--rule",
        dest="rules",
        metavar="RULE",
        action="append",
        default=[],
        help="collapsed:hold_steps=40, mismatch_kl:above=0.5,hold_steps=20, default; may be"
        " repeated (default: the sweep's own rules, or `default` where it has none)",
    )
    take_json(parser)


def add_report(parser: Parser) -> None:
    take_sweep(parser)
    parser.add_argument("--watch", action="store_true", help="write it anew while runs go on")
    parser.add_argument(
        "--every", metavar="S", type=seconds, default=60.0, help="with --watch: seconds between"
    )
    _reporting(parser)
    take_json(parser)


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
        "--max-steps", metavar="N", type=positive, help="steps that every run was to make"
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
    take_json(parser)


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
        type=share,
        default=0.001,
        help="a recommended threshold masks at most this share of the tokens (default: 0.001)",
    )
    parser.add_argument(
        "--moved",
        metavar="CHANGE",
        type=share,
        default=0.3,
        help="and every token whose probability moved by more than this (default: 0.3)",
    )
    parser.add_argument(
        "--window-steps", metavar="N", type=positive, help="steps per row of the table by step"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("replay"),
        help="where the replay goes (default: ./replay)",
    )
    take_profile(parser, "count runs and files as jobs of this profile")
    take_json(parser)
