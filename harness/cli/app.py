"""Which verbs there are and what they take; the work is in one module per verb.

Only argparse is loaded here: a verb's module is imported when that verb runs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from harness import __version__
from harness.errors import UsageError
from harness.near import did_you_mean

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_ABOUT = "Ablations of RL losses: compose, dispatch, record and compare the arms of one recipe."


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are UsageErrors instead of an exit."""

    def error(self, message: str) -> NoReturn:
        verb = self.prog.partition(" ")[2]
        raise UsageError(message, help_hint(verb))

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        (file or sys.stdout).write(self.format_help())  # argparse's own hides what fails


@dataclass(frozen=True)
class Verb:
    """One verb: its help, its arguments, and where its work is (`module:function`)."""

    help: str
    add_arguments: Callable[[Parser], None]
    target: str


def run_app(arguments: Sequence[str]) -> int:
    """Run the command in `arguments`; return its exit code. Raises HarnessError."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(render_help(), end="")
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"ablation-harness {__version__}")
        return 0
    name, rest = arguments[0], list(arguments[1:])
    if name not in VERBS:
        what = "option" if name.startswith("-") else "verb"
        raise UsageError(f"there is no {what} `{name}`", did_you_mean(name, VERBS, what="verbs"))
    verb = VERBS[name]
    parser = Parser(prog=f"harness {name}", description=verb.help, allow_abbrev=False)
    verb.add_arguments(parser)
    try:
        values = vars(parser.parse_intermixed_args(rest))
    except SystemExit as leave:  # --help has been printed
        return int(leave.code or 0)
    except UsageError as error:
        raise _with_near_miss(error, parser, rest) from None
    module, _, function = verb.target.partition(":")
    work = getattr(importlib.import_module(f"harness.cli.{module}"), function)
    code = work(**values)
    assert isinstance(code, int)
    return code


def render_help() -> str:
    """Return the help text of the whole command."""
    width = max(len(name) for name in VERBS) + 2
    verbs = "\n".join(f"  {name:<{width}}{verb.help}" for name, verb in VERBS.items())
    return (
        f"usage: harness VERB SWEEP [ARM[/SEED]]\n\n{_ABOUT}\n\nverbs:\n{verbs}\n\n"
        "harness VERB --help tells what a verb takes; harness --version prints the version.\n"
        "exit codes: 0 done, 1 runs failed, 2 the command can't be carried out\n"
    )


def help_hint(verb: str) -> str:
    """Return how to see what `verb` takes, or the verbs where there is none of that name."""
    if verb in VERBS:
        return f"`harness {verb} --help` tells what it takes"
    return "`harness --help` lists the verbs"


def _with_near_miss(error: UsageError, parser: Parser, rest: Sequence[str]) -> UsageError:
    options = [flag for action in parser._actions for flag in action.option_strings]
    for word in rest:
        flag = word.partition("=")[0]
        if flag.startswith("--") and flag not in options:
            return UsageError(f"there is no option `{flag}`", did_you_mean(flag, options))
    return error


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


def _compose_arguments(parser: Parser) -> None:
    _overrides(parser)
    parser.add_argument(
        "--diff",
        metavar='"KEY=VALUE …"',
        help="show what differs from the configuration with these overrides",
    )
    _as_json(parser)


def _plan_arguments(parser: Parser) -> None:
    _sweep(parser)
    _overrides(parser)
    _as_name(parser)
    _as_json(parser)


def _run_arguments(parser: Parser) -> None:
    _sweep(parser)
    _overrides(parser)
    _as_name(parser)
    parser.add_argument(
        "--on",
        dest="profile_name",
        metavar="PROFILE",
        default="local",
        help="where to run: a profile's name or file (default: local)",
    )
    parser.add_argument("--slots", type=_positive, help="runs at a time, on the local queue")
    parser.add_argument(
        "--reuse-across-code",
        action="store_true",
        help="keep finished runs that other code made",
    )
    parser.add_argument(
        "--no-report", dest="with_report", action="store_false", help="do not write the report"
    )


def _logs_arguments(parser: Parser) -> None:
    _sweep(parser)
    _run_target(parser)
    parser.add_argument("-n", "--tail", type=_positive, default=200, help="how many last lines")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as the log grows")


def _clean_arguments(parser: Parser) -> None:
    _sweep(parser)
    parser.add_argument("--left", action="store_true", help="also remove runs that left the plan")
    _dry_run(parser)


def _all_of(*parts: Callable[[Parser], Any]) -> Callable[[Parser], None]:
    def add(parser: Parser) -> None:
        for part in parts:
            part(parser)

    return add


VERBS: dict[str, Verb] = {
    "compose": Verb(
        "print a resolved configuration: harness compose loss=icepop",
        _compose_arguments,
        "compose:compose_command",
    ),
    "plan": Verb(
        "show the runs of a sweep and what each arm changes; refuse what can't be compared",
        _plan_arguments,
        "plan:plan_command",
    ),
    "run": Verb(
        "run what is missing of a sweep and end in its report",
        _run_arguments,
        "run:run_sweep_command",
    ),
    "status": Verb(
        "show the state of every run", _all_of(_sweep, _target, _as_json), "inspect:status_command"
    ),
    "logs": Verb("print the log of a run", _logs_arguments, "inspect:logs_command"),
    "why": Verb(
        "explain the state of one run: exit code, reason, last traceback",
        _all_of(_sweep, _run_target, _as_json),
        "inspect:why_command",
    ),
    "cancel": Verb(
        "stop runs that are queued or running",
        _all_of(_sweep, _target, _dry_run),
        "manage:cancel_command",
    ),
    "report": Verb(
        "compare the arms and write the report (HTML, Markdown, JSON, CSV, PNG)",
        _all_of(_sweep, _as_json),
        "report:report_command",
    ),
    "clean": Verb(
        "remove what no run needs any more: old checkpoints, code copies, temporary files",
        _clean_arguments,
        "manage:clean_command",
    ),
}
