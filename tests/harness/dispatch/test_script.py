"""Batch scripts: their whole text, and that bash takes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.dispatch.arrays import Array, plan_arrays
from harness.dispatch.interface import Order
from harness.dispatch.script import array_job, check_path, command, finish_job, setup_lines
from harness.dispatch.slurm import render_script
from harness.errors import UsageError
from harness.profile import Profile
from harness.records.layout import SubmissionPaths, SweepPaths
from harness.records.model import PlannedRun
from harness.slurm_profile import SlurmProfile

PATHS = SubmissionPaths(Path("/shared/out puts/toy/submissions/0003-1f9c2a"))
CODE_DIR = "/shared/out puts/toy/code/abc"


def make_array(num_seeds: int = 4, **settings: Any) -> Array:
    runs = tuple(PlannedRun("ipo", seed, "identity", 10) for seed in range(num_seeds))
    profile = Profile("lab", SlurmProfile(**{"python": "python3", **settings}))
    order = Order(SweepPaths(Path("/shared/out puts/toy")), runs, profile, "c" * 64)
    [array] = plan_arrays(order, "1f9c2a", 1001)
    return array


def render(*, after: str | None = None, code_dir: str | None = CODE_DIR, **settings: Any) -> str:
    job = array_job(make_array(**settings), PATHS, code_dir, after)
    return render_script(job, PATHS.slurm_dir)


def render_finish(**settings: Any) -> str:
    profile = SlurmProfile(**{"python": "python3", **settings})
    job = finish_job("toy@1f9c2a.finish", PATHS, profile, CODE_DIR, ("12", "13"))
    return render_script(job, PATHS.slurm_dir)


def options(text: str) -> dict[str, str | None]:
    """Return option -> value of the `#SBATCH` lines; None for one without a value."""
    lines = [line.removeprefix("#SBATCH --") for line in text.splitlines() if "#SBATCH" in line]
    pairs = [line.partition("=") for line in lines]
    return {name: value if equals else None for name, equals, value in pairs}


FULL = """\
#!/bin/bash

# Parameters
#SBATCH --account=rl
#SBATCH --array=0-3%2
#SBATCH --comment='harness 0003-1f9c2a 0'
#SBATCH --constraint='h100|h200'
#SBATCH --cpus-per-task=16
#SBATCH --dependency=afterany:11
#SBATCH --gpus-per-node=8
#SBATCH --job-name=toy@1f9c2a.0
#SBATCH --mail-type=FAIL
#SBATCH --mail-user=me@lab.org
#SBATCH --mem=64G
#SBATCH --nodes=1
#SBATCH --open-mode=append
#SBATCH --output='/shared/out puts/toy/submissions/0003-1f9c2a/slurm/%A_%a_0_log.out'
#SBATCH --partition=gpu
#SBATCH --qos=high
#SBATCH --requeue
#SBATCH --signal=USR2@90
#SBATCH --time=1440

# setup
trap 'harness_code=$?; echo "harness: exit code $harness_code of the setup line: $BASH_COMMAND" >&2; exit "$harness_code"' ERR
module load cuda
source /opt/venv/bin/activate
trap - ERR
set +eu
export HARNESS_SUBMISSION_DIR='/shared/out puts/toy/submissions/0003-1f9c2a'
export HARNESS_ARRAY=0
export PYTHONPATH='/shared/out puts/toy/code/abc'${PYTHONPATH:+:$PYTHONPATH}
# SLURM 22.05 and newer do not pass the CPUs of a task on to srun by themselves
test -z "${SLURM_CPUS_PER_TASK:-}" || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
# the step gets its own signals; this shell waits for its end
trap : TERM INT USR1 USR2 CONT
set -- uv run --no-sync python
command -v "$1" >/dev/null || { echo "harness: there is no program \\`$1\\` on $(uname -n) (key \\`python\\` of the profile)" >&2; exit 127; }

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output '/shared/out puts/toy/submissions/0003-1f9c2a/slurm/%A_%a_%t_log.out' --cpu-bind=none uv run --no-sync python -u -P -m harness.runner.element
"""  # noqa: E501

WITHOUT_STEP = """\
#!/bin/bash

# Parameters
#SBATCH --array=0-3%4
#SBATCH --comment='harness 0003-1f9c2a 0'
#SBATCH --job-name=toy@1f9c2a.0
#SBATCH --nodes=2
#SBATCH --open-mode=append
#SBATCH --output='/shared/out puts/toy/submissions/0003-1f9c2a/slurm/%A_%a_0_log.out'
#SBATCH --requeue
#SBATCH --signal=B:USR2@120

# setup
export HARNESS_SUBMISSION_DIR='/shared/out puts/toy/submissions/0003-1f9c2a'
export HARNESS_ARRAY=0
set -- python3
command -v "$1" >/dev/null || { echo "harness: there is no program \\`$1\\` on $(uname -n) (key \\`python\\` of the profile)" >&2; exit 127; }

# command
export SUBMITIT_EXECUTOR=slurm
# no step: the signals come to this shell, which passes them on
python3 -u -P -m harness.runner.element &
harness_child=$!
trap 'kill -s TERM "$harness_child" 2>/dev/null' TERM
trap 'kill -s INT "$harness_child" 2>/dev/null' INT
trap 'kill -s USR1 "$harness_child" 2>/dev/null' USR1
trap 'kill -s USR2 "$harness_child" 2>/dev/null' USR2
trap 'kill -s CONT "$harness_child" 2>/dev/null' CONT
while :; do
  wait "$harness_child"
  kill -s 0 "$harness_child" 2>/dev/null || break
done
wait "$harness_child"
"""  # noqa: E501

FINISH = """\
#!/bin/bash

# Parameters
#SBATCH --account=rl
#SBATCH --comment='harness 0003-1f9c2a finish'
#SBATCH --cpus-per-task=1
#SBATCH --dependency=afterany:12:13
#SBATCH --job-name=toy@1f9c2a.finish
#SBATCH --mem=2G
#SBATCH --nodes=1
#SBATCH --open-mode=append
#SBATCH --output='/shared/out puts/toy/submissions/0003-1f9c2a/slurm/%j_finish_log.out'
#SBATCH --partition=cpu
#SBATCH --requeue
#SBATCH --time=30

# setup
export HARNESS_SUBMISSION_DIR='/shared/out puts/toy/submissions/0003-1f9c2a'
export PYTHONPATH='/shared/out puts/toy/code/abc'${PYTHONPATH:+:$PYTHONPATH}
set -- python3
command -v "$1" >/dev/null || { echo "harness: there is no program \\`$1\\` on $(uname -n) (key \\`python\\` of the profile)" >&2; exit 127; }

# command
export SUBMITIT_EXECUTOR=slurm
python3 -u -P -m harness.dispatch.finish
"""  # noqa: E501


def test_whole_script_of_an_array_that_runs_as_a_step() -> None:
    text = render(
        after="11",
        partition="gpu",
        account="rl",
        qos="high",
        gpus_per_node=8,
        cpus_per_task=16,
        mem="64G",
        time=1440,
        parallelism=2,
        setup=("module load cuda", "source /opt/venv/bin/activate"),
        python="uv run --no-sync python",
        srun_args=("--cpu-bind=none",),
        mail_type="FAIL",
        mail_user="me@lab.org",
        signal_delay_s=90,
        sbatch={"constraint": "h100|h200"},
    )
    assert text == FULL


def test_whole_script_of_an_array_on_several_nodes() -> None:
    assert render(nodes=2, code_dir=None) == WITHOUT_STEP


def test_whole_script_of_the_finishing_job() -> None:
    settings = {
        "partition": "gpu",
        "account": "rl",
        "gpus_per_node": 8,
        "mem": "64G",
        "time": 1440,
        "sbatch": {"constraint": "h100", "hold": True},
        "finish": {"partition": "cpu"},
    }
    assert render_finish(**settings) == FINISH


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("comment", None),
        ("job-name", None),
        ("nodes", None),
        ("open-mode", None),
        ("output", None),
        ("requeue", None),
        ("signal", None),
    ],
)
def test_null_switches_off_what_the_harness_writes(name: str, value: None) -> None:
    for text in (render(sbatch={name: value}), render(sbatch={name: value}, use_srun=False)):
        everything = options(render())
        assert options(text).keys() == everything.keys() - {name}
    assert name not in options(render_finish(sbatch={name: value}))


def test_no_requeue_is_said_and_can_be_switched_off() -> None:
    shown = options(render(requeue=False))
    assert "no-requeue" in shown
    assert "requeue" not in shown
    assert "no-requeue" not in options(render(requeue=False, sbatch={"requeue": None}))


def test_there_is_no_wckey_and_no_time_unless_the_profile_says_so() -> None:
    shown = options(render())
    assert not {"wckey", "time", "partition", "mem", "error", "dependency"} & shown.keys()
    assert options(render(sbatch={"wckey": "mine"}))["wckey"] == "mine"


def test_options_are_quoted_for_the_shell() -> None:
    text = render(sbatch={"comment": None, "reservation": "it's $HOME"}, account="a b")
    assert options(text)["reservation"] == "'it'\"'\"'s $HOME'"
    assert options(text)["account"] == "'a b'"


def test_default_python_is_the_one_that_submits() -> None:
    assert f"set -- {sys.executable}\n" in render(python=None)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_srun": False},
        {"setup": ("if true; then", "  echo 'a b'", "fi", "f() { false; }")},
        {"nodes": 4, "use_srun": True},
    ],
)
def test_bash_reads_every_script(settings: dict[str, Any]) -> None:
    for text in (render(**settings), render_finish(**settings)):
        done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
        assert (done.returncode, done.stderr) == (0, "")


def run_bash(lines: list[str], tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.sh"
    script.write_text("\n".join(lines))
    return subprocess.run(
        ["bash", str(script)], text=True, capture_output=True, env={**os.environ, **env}
    )


def lines_of(**settings: Any) -> list[str]:
    job = array_job(make_array(**settings), PATHS, CODE_DIR, None)
    return setup_lines(job)


@pytest.mark.parametrize(
    ("setup", "code", "line"),
    [
        (("echo before", "(exit 3)", "echo after"), 3, "( exit 3 )"),
        (("no_such_command",), 127, "no_such_command"),
        (("source /no/such/file",), 1, "source /no/such/file"),
        (("f() { (exit 4); }", "f"), 4, "f"),
        (("true | false",), 1, "false"),
    ],
)
def test_setup_line_that_fails_ends_the_job_and_is_named(
    setup: tuple[str, ...], code: int, line: str, tmp_path: Path
) -> None:
    done = run_bash([*lines_of(setup=setup), "echo reached"], tmp_path)
    assert done.returncode == code
    assert "reached" not in done.stdout
    assert done.stderr.splitlines()[-1] == f"harness: exit code {code} of the setup line: {line}"


@pytest.mark.parametrize(
    "setup",
    [
        ("if false; then", "  exit 9", "fi"),
        ("false || true", "! true || true"),
        ("set -eu", "true"),
        ("set -- a b c",),
        ("x=$(false) || x=1",),
    ],
)
def test_setup_lines_that_do_not_fail_change_nothing(
    setup: tuple[str, ...], tmp_path: Path
) -> None:
    tail = ["false", 'echo "$1 $HARNESS_ARRAY $PYTHONPATH"']
    done = run_bash([*lines_of(setup=setup, python="python3"), *tail], tmp_path, PYTHONPATH="/a")
    assert (done.stdout, done.returncode) == (f"python3 0 {CODE_DIR}:/a\n", 0)


def test_frozen_code_stands_alone_without_a_pythonpath(tmp_path: Path) -> None:
    lines = ["unset PYTHONPATH", *lines_of(setup=("set -u",)), 'echo "$PYTHONPATH"']
    assert run_bash(lines, tmp_path).stdout == f"{CODE_DIR}\n"


def test_cpus_of_the_task_reach_srun(tmp_path: Path) -> None:
    lines = [*lines_of(), 'echo "${SRUN_CPUS_PER_TASK-unset}"']
    assert run_bash(lines, tmp_path, SLURM_CPUS_PER_TASK="8").stdout == "8\n"
    assert run_bash(["unset SLURM_CPUS_PER_TASK", *lines], tmp_path).stdout == "unset\n"


@pytest.mark.parametrize(
    "python", ["/no/such/python", "no_such_python -X dev", "'/no such/python'"]
)
def test_python_that_is_not_there_is_127_and_named(python: str, tmp_path: Path) -> None:
    done = run_bash([*lines_of(python=python), "echo reached"], tmp_path)
    assert (done.returncode, done.stdout) == (127, "")
    name = "/no such/python" if "'" in python else python.split()[0]
    assert f"there is no program `{name}` on {os.uname().nodename}" in done.stderr


def test_python_may_name_a_variable_of_the_node(tmp_path: Path) -> None:
    lines = [*lines_of(python='"$SITE_PYTHON" -X dev'), 'echo "$1"']
    assert run_bash(lines, tmp_path, SITE_PYTHON="/bin/true").stdout == "/bin/true\n"


CHILD = """
import signal, sys, time
from pathlib import Path
names = [signal.SIGUSR2, signal.SIGTERM]
signal.pthread_sigmask(signal.SIG_BLOCK, names)
Path(sys.argv[-1]).touch()
print(*(signal.Signals(signal.sigwait([name])).name for name in names), flush=True)
sys.exit(7)
"""


def test_shell_without_a_step_passes_signals_on_and_exits_as_its_child(
    tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    child, ready = tmp_path / "child.py", tmp_path / "ready"
    child.write_text(CHILD)
    job = array_job(make_array(use_srun=False, python=sys.executable), PATHS, None, None)
    text = command(job).replace("-u -P -m harness.runner.element", f"{child} {ready}")
    process = subprocess.Popen(["bash", "-c", text], stdout=subprocess.PIPE, text=True)
    wait_until(ready.exists)
    process.send_signal(signal.SIGUSR2)
    time.sleep(0.05)  # bash would merge two signals of one kind, never of two
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == ("SIGUSR2 SIGTERM\n", 7)


@pytest.mark.parametrize("name", ["50%", "back\\slash", "line\nbreak"])
def test_folder_that_slurm_would_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="has a meaning of its own for SLURM"):
        check_path(Path("/shared") / name / "toy", "the folder of the sweep")
    check_path(Path("/shared/it's 100 $HOME ünïcødé; #/toy"), "the folder of the sweep")
