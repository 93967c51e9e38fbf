"""Which verbs there are and what they take; the work is in one module per verb.

Only argparse is loaded here: a verb's module is imported when that verb runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness import __version__
from harness.cli import analysis_arguments, arguments
from harness.cli.shared_arguments import Parser as Parser
from harness.errors import UsageError
from harness.near import did_you_mean

_ABOUT = "Ablations of RL losses: compose, dispatch, record and compare the arms of one recipe."


@dataclass(frozen=True)
class Verb:
    """One verb: its help, its arguments, and where its work is (`module:function`)."""

    help: str
    add_arguments: Callable[[Parser], None]
    target: str


def run_app(words: Sequence[str]) -> int:
    """Run the command in `words`; return its exit code. Raises HarnessError."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(render_help(), end="")
        return 0
    if words[0] in ("-V", "--version"):
        print(f"ablation-harness {__version__}")
        return 0
    name, rest = words[0], list(words[1:])
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
        "exit codes: 0 done, 1 runs failed, 2 the command can't be carried out,\n"
        "            3 a --fail-if holds, 4 one can't be decided, 130 Ctrl-C\n"
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


VERBS: dict[str, Verb] = {
    "compose": Verb(
        "print a resolved configuration: harness compose loss=icepop",
        arguments.add_compose,
        "compose:compose_command",
    ),
    "plan": Verb(
        "show the runs of a sweep and what each arm changes; refuse what can't be compared",
        arguments.add_plan,
        "plan:plan_command",
    ),
    "power": Verb(
        "seeds per arm against what a sweep detects and what it costs, before it runs",
        analysis_arguments.add_power,
        "power:power_command",
    ),
    "run": Verb(
        "run what is missing of a sweep, here or on a cluster, and end in its report",
        arguments.add_run,
        "run:run_sweep_command",
    ),
    "import-toml": Verb(
        "make a sweep of prime-rl's own files: one base, one overlay per loss",
        arguments.add_import_toml,
        "import_toml:import_toml_command",
    ),
    "status": Verb("show the state of every run", arguments.add_status, "status:status_command"),
    "logs": Verb("print the log of a run", arguments.add_logs, "inspect:logs_command"),
    "why": Verb(
        "explain the state of one run: exit code, reason, last traceback",
        arguments.add_why,
        "inspect:why_command",
    ),
    "cancel": Verb(
        "stop runs that are queued or running", arguments.add_cancel, "manage:cancel_command"
    ),
    "retry": Verb(
        "start failed, lost and cancelled runs again, as they were planned",
        arguments.add_retry,
        "retry:retry_command",
    ),
    "stop-check": Verb(
        "what stop rules would have saved, and what they would have cost, in finished runs",
        analysis_arguments.add_stop_check,
        "stop_check:stop_check_command",
    ),
    "diff": Verb(
        "show the keys in which two arms of a sweep differ",
        arguments.add_diff,
        "diff:diff_command",
    ),
    "report": Verb(
        "compare the arms and write the report (HTML, Markdown, JSON, CSV, PNG)",
        analysis_arguments.add_report,
        "report:report_command",
    ),
    "compare": Verb(
        "the same for runs that something else launched, wherever they logged",
        analysis_arguments.add_compare,
        "compare:compare_command",
    ),
    "replay": Verb(
        "count what masks would have done to recorded tokens; recommend a threshold",
        analysis_arguments.add_replay,
        "replay:replay_command",
    ),
    "clean": Verb(
        "remove what no run needs any more: old checkpoints, code copies, temporary files",
        arguments.add_clean,
        "manage:clean_command",
    ),
    "doctor": Verb(
        "check Python, the outputs folder, SLURM, wandb and GPUs; say what to do",
        arguments.add_doctor,
        "doctor:doctor_command",
    ),
}
