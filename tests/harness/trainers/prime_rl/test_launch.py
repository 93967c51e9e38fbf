from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError
from harness.trainers.interface import Command, Launch, Start
from harness.trainers.prime_rl.launch import command
from harness.trainers.prime_rl.owned import run_id
from harness.trainers.prime_rl.stamp import stamp
from tests.harness.trainers.prime_rl.arms import (
    NAME,
    SHOWN,
    expand_document,
    git,
    make_checkout,
    make_launch,
)

RECORDING_RL = """\
#!/usr/bin/env bash
# Stands in for prime-rl's `rl`: writes down how it was started and waits for its end.
record() { printf '%s\\n' "$@"; }
trap 'echo "ended by SIGTERM"; exit 7' TERM
record "pid $$" "cwd $PWD" "run $PRL_RUN_ID" "path ${PYTHONPATH-none}" "env ${FROM_FILE-none}"
record "sync $UV_NO_SYNC" "quoted $QUOTED" "arguments" "$@" "started"
while :; do sleep 0.05; done
"""
RENDERING_RL = """\
#!/usr/bin/env bash
# Stands in for prime-rl's dry run of a multi-node run: renders a script and leaves.
echo "arguments $*"
mkdir -p "$(dirname "$RENDERS")"
printf '%s\\n' 'uv sync --all-extras' '  uv sync --all-extras' 'echo "inner $PRL_RUN_ID"' \\
  'echo "argv $0"' "$THEN" > "$RENDERS"
"""
MULTI_NODE = {"deployment": {"type": "multi_node", "num_train_nodes": 1}, "inference": {}}


@pytest.fixture
def weird(tmp_path: Path) -> Path:
    folder = tmp_path / 'it\'s a "folder" $HOME'
    folder.mkdir()
    make_checkout(folder / "checkout")
    return folder


def _add_program(checkout: Path, text: str) -> None:
    program = checkout / "my rl"
    program.write_text(text)
    program.chmod(0o755)


def _start(made: Command) -> subprocess.Popen[str]:
    return subprocess.Popen(
        made.argv,
        env={**os.environ, **made.env},
        cwd=made.cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _read_document(launch: Launch) -> dict[str, Any]:
    document = json.loads((launch.inputs_dir / "rl.json").read_text())
    assert isinstance(document, dict)
    return document


def test_the_script_starts_prime_rl_in_its_checkout_and_passes_sigterm_on(weird: Path) -> None:
    checkout = weird / "checkout"
    _add_program(checkout, RECORDING_RL)
    (checkout / ".env").write_text("export FROM_FILE=yes PRL_RUN_ID=another\n")
    config = expand_document(
        weird,
        {"slurm": {"pre_run_command": "echo preparing"}, "inference": {}},
        loss={"type": "kpop"},
        command=["./my rl", "a b"],
        env={"QUOTED": "it's $HOME", "PYTHONPATH": "/mine"},
    )
    launch = make_launch(weird, config)
    made = command(launch)
    inputs = launch.inputs_dir
    assert made.argv == ("bash", str(inputs / "launch.sh"))
    assert made.cwd == checkout
    process = _start(made)
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1] != "started":
        lines.append(process.stdout.readline().rstrip("\n"))
    assert lines == [
        "preparing",
        f"pid {process.pid}",
        f"cwd {checkout}",
        f"run {run_id(NAME)}",
        f"path {inputs}:/mine",
        "env yes",
        "sync 1",
        "quoted it's $HOME",
        "arguments",
        "a b",
        "@",
        str(inputs / "rl.json"),
        "started",
    ]
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=30)
    assert (rest, process.returncode) == ("ended by SIGTERM\n", 7)


def test_everything_that_a_run_reads_lies_with_its_attempt(tmp_path: Path) -> None:
    config = expand_document(tmp_path, {"inference": {}, "seq_len": None}, loss={"type": "kpop"})
    launch = make_launch(tmp_path, config)
    command(launch)
    files = ["ablation_loss.py", "launch.sh", "rl.json"]
    assert sorted(path.name for path in launch.inputs_dir.iterdir()) == files
    assert "code " + "c" * 64 in (launch.inputs_dir / "ablation_loss.py").read_text()
    document = _read_document(launch)
    assert document["seq_len"] is None
    assert document["max_steps"] == 20
    assert document["output_dir"] == str(launch.paths.trainer_dir)
    assert list(launch.paths.trainer_dir.iterdir()) == []


def test_a_path_that_cannot_stand_on_the_path_of_python_is_refused(tmp_path: Path) -> None:
    launch = make_launch(tmp_path / "a:b", expand_document(tmp_path, {}, loss={"type": "kpop"}))
    with pytest.raises(HarnessError, match="holds `:`, so it can't stand in PYTHONPATH"):
        command(launch)


def test_a_loss_of_prime_rl_needs_no_file(tmp_path: Path) -> None:
    launch = make_launch(tmp_path, expand_document(tmp_path, {}))
    assert "PYTHONPATH" not in (command(launch).env.keys() - os.environ.keys())
    assert not (launch.inputs_dir / "ablation_loss.py").exists()
    assert "PYTHONPATH" not in (launch.inputs_dir / "launch.sh").read_text()


def test_the_exported_loss_stays_importable_where_the_document_sets_the_path(
    tmp_path: Path,
) -> None:
    document = {"env_vars": {"PYTHONPATH": "/a"}, "trainer": {"env_vars": {"PYTHONPATH": "/b"}}}
    config = expand_document(tmp_path, document, loss={"type": "kpop"})
    launch = make_launch(tmp_path, config)
    command(launch)
    rendered = _read_document(launch)
    assert rendered["env_vars"] == {"PYTHONPATH": f"{launch.inputs_dir}:/a"}
    assert rendered["trainer"]["env_vars"] == {"PYTHONPATH": f"{launch.inputs_dir}:/b"}


def test_the_harness_itself_is_not_on_the_path_of_prime_rl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Path(__file__).parents[4]
    monkeypatch.setenv("PYTHONPATH", f"{ours}:/other:")
    launch = make_launch(tmp_path, expand_document(tmp_path, {}))
    assert command(launch).env["PYTHONPATH"] == "/other"


def test_runs_on_one_machine_get_other_ports(tmp_path: Path) -> None:
    config = expand_document(tmp_path, {"inference": {}})
    ports = set()
    for attempt in (1, 2):
        launch = make_launch(tmp_path, config, attempt=attempt)
        command(launch)
        ports.add(_read_document(launch)["inference"]["server"]["port"])
    assert len(ports) == 2


def test_fixed_ports_stay_those_of_prime_rl(tmp_path: Path) -> None:
    launch = make_launch(tmp_path, expand_document(tmp_path, {"inference": {}}, ports="fixed"))
    command(launch)
    assert _read_document(launch)["inference"] == {}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_goes_on_from_its_newest_whole_checkpoint(tmp_path: Path, elsewhere: bool) -> None:
    document = {"ckpt": {"output_dir": str(tmp_path / "big"), "interval": 5}} if elsewhere else {}
    config = expand_document(tmp_path, document)
    command(make_launch(tmp_path, config))
    launch = make_launch(tmp_path, config, attempt=2)
    run_folder = launch.paths.trainer_dir / SHOWN
    trainer_part = tmp_path / "big" / SHOWN if elsewhere else run_folder
    for path in (
        trainer_part / "checkpoints/step_5/trainer/.metadata",
        run_folder / "checkpoints/step_5/orchestrator/progress.pt",
    ):
        path.parent.mkdir(parents=True)
        path.touch()
    command(launch)
    assert _read_document(launch)["resume"] == {"step": 5}
    assert run_folder.is_dir()
    assert "going on from the checkpoint of step 5" in (launch.inputs_dir / "launch.sh").read_text()


def test_without_a_whole_checkpoint_an_earlier_start_is_moved_aside(tmp_path: Path) -> None:
    config = expand_document(tmp_path, {})
    command(make_launch(tmp_path, config))
    launch = make_launch(tmp_path, config, attempt=2)
    lost = launch.paths.trainer_dir / SHOWN / "metrics.jsonl"
    lost.parent.mkdir()
    lost.write_text("{}\n")
    command(launch)
    assert "resume" not in _read_document(launch)
    moved = launch.paths.trainer_dir / f"{SHOWN}.lost_1"
    assert (moved / "metrics.jsonl").read_text() == "{}\n"
    assert str(moved) in (launch.inputs_dir / "launch.sh").read_text()


@pytest.mark.parametrize("attempt", [1, 2])
def test_files_of_a_run_that_never_began_are_neither_resumed_nor_moved(
    tmp_path: Path, attempt: int
) -> None:
    config = expand_document(tmp_path, {"ckpt": {"interval": 5}})
    launch = make_launch(tmp_path, config, attempt=attempt)  # a first attempt was refused like this
    folder = launch.paths.trainer_dir / SHOWN
    for part in ("trainer/.metadata", "orchestrator/progress.pt"):
        planted = folder / "checkpoints/step_5" / part
        planted.parent.mkdir(parents=True)
        planted.touch()
    with pytest.raises(HarnessError) as raised:
        command(launch)
    assert raised.value.message == (
        f"`{folder}` holds the files of a run, but this run has not begun before"
    )
    assert raised.value.hint == "move that folder away, or give the sweep another name"
    assert planted.is_file()
    assert not launch.inputs_dir.exists()


def test_checkpoints_elsewhere_of_a_run_that_never_began_are_not_resumed(tmp_path: Path) -> None:
    config = expand_document(tmp_path, {"ckpt": {"output_dir": str(tmp_path / "big")}})
    (tmp_path / "big" / SHOWN / "checkpoints/step_5").mkdir(parents=True)
    with pytest.raises(HarnessError, match="holds checkpoints, but this run has not begun"):
        command(make_launch(tmp_path, config))


def test_what_prime_rl_writes_before_a_run_begins_is_in_nobodys_way(tmp_path: Path) -> None:
    launch = make_launch(tmp_path, expand_document(tmp_path, {}))
    (launch.paths.trainer_dir / SHOWN / "configs").mkdir(parents=True)
    command(launch)
    assert launch.inputs_dir.is_dir()


def test_a_checkout_that_changed_since_the_plan_is_refused(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "checkout", is_git=True)
    config = expand_document(tmp_path, {})
    planned = stamp(config)
    assert planned is not None
    command(make_launch(tmp_path, config, stamp=planned.text))
    git(checkout, "commit", "-q", "--allow-empty", "-m", "another state")
    commit = git(checkout, "rev-parse", "HEAD")
    with pytest.raises(HarnessError) as raised:
        command(make_launch(tmp_path, config, stamp=planned.text))
    assert raised.value.message == (
        f"the prime-rl in `{checkout}` changed since the plan: {planned.text[:12]} then,"
        f" {commit[:12]} now"
    )
    assert "`harness run`" in raised.value.hint


def test_a_node_that_cannot_tell_the_version_runs_what_is_there(tmp_path: Path) -> None:
    config = expand_document(tmp_path, {})  # not in git
    command(make_launch(tmp_path, config, stamp="f" * 40))
    command(make_launch(tmp_path, config, stamp=None))


@pytest.mark.parametrize("where", ["rl.sbatch", "launcher/rl.sbatch"])
def test_a_multi_node_run_executes_the_script_that_its_dry_run_renders(
    tmp_path: Path, where: str
) -> None:
    checkout = make_checkout(tmp_path / "checkout")
    _add_program(checkout, RENDERING_RL)
    rendered = tmp_path / "outputs/toy/runs/ipo/seed_3/trainer" / SHOWN / where
    env = {"RENDERS": str(rendered)}
    config = expand_document(tmp_path, MULTI_NODE, command=["./my rl"], env=env)
    launch = make_launch(tmp_path, config)
    made = command(launch)
    assert "weight_broadcast" not in _read_document(launch)  # ports stay prime-rl's
    done = _start(made).communicate(timeout=30)[0].splitlines()
    copied = launch.inputs_dir / "rl.sbatch"
    assert done == [
        f"arguments @ {launch.inputs_dir / 'rl.json'} --dry-run",
        f"inner {run_id(NAME)}",
        f"argv {launch.inputs_dir / 'launch.sh'}",
    ]
    assert copied.read_text().splitlines()[:2] == [": # no sync", ": # no sync"]
    assert "uv sync" in rendered.read_text()


def test_a_sync_that_shares_its_line_with_another_command_stays_in_the_script(
    tmp_path: Path,
) -> None:
    checkout = make_checkout(tmp_path / "checkout")
    _add_program(checkout, RENDERING_RL)
    lines = ['uv() { echo "called uv $*"; }', "uv sync", "uv sync --a ; echo cleared"]
    lines += ["uv sync --b && echo and", "uv synchronize"]
    env = {
        "RENDERS": str(tmp_path / "outputs/toy/runs/ipo/seed_3/trainer" / SHOWN / "rl.sbatch"),
        "THEN": "\n".join(lines),
    }
    config = expand_document(tmp_path, MULTI_NODE, command=["./my rl"], env=env)
    said = _start(command(make_launch(tmp_path, config))).communicate(timeout=30)[0]
    assert said.splitlines()[3:] == [
        "called uv sync --a",
        "cleared",
        "called uv sync --b",
        "and",
        "called uv synchronize",
    ]


@pytest.mark.parametrize(
    ("native", "leaves", "code"),
    [
        ({}, {"metrics.jsonl": '{"step": 20, "time": 1.0, "loss/mean": 0.5}\n'}, 0),
        ({}, {"monitors/file/metrics.jsonl": '{"time": 1.0, "step": 20, "optim/lr": 1e-6}\n'}, 0),
        ({}, {"metrics.jsonl": '{"step": 20, "train/agg/all/agent/reward/mean": 0.5}\n'}, 9),
        ({}, {"metrics.jsonl": '{"step": 200, "loss/mean": 0.5}\n'}, 9),
        ({"ckpt": {}}, {"metrics.jsonl": '{"step": 20, "loss/mean": 0.5}\n'}, 9),
        ({"ckpt": {}}, {"checkpoints/step_20/trainer/.metadata": ""}, 9),
        (
            {"ckpt": {}},
            {
                "checkpoints/step_20/trainer/.metadata": "",
                "checkpoints/step_20/orchestrator/progress.pt": "",
            },
            0,
        ),
    ],
)
def test_a_multi_node_run_is_done_by_what_its_last_step_left_however_its_nodes_ended(
    tmp_path: Path, native: dict[str, Any], leaves: dict[str, str], code: int
) -> None:
    checkout = make_checkout(tmp_path / "checkout")
    _add_program(checkout, RENDERING_RL)
    folder = tmp_path / "outputs/toy/runs/ipo/seed_3/trainer" / SHOWN
    env = {"RENDERS": str(folder / "rl.sbatch"), "THEN": "exit 9"}
    config = expand_document(tmp_path, {**MULTI_NODE, **native}, command=["./my rl"], env=env)
    made = command(make_launch(tmp_path, config))
    for name, text in leaves.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    process = _start(made)
    process.communicate(timeout=30)
    assert process.returncode == code


def test_a_dry_run_that_renders_nothing_ends_the_attempt(tmp_path: Path) -> None:
    make_checkout(tmp_path / "checkout")
    config = expand_document(tmp_path, MULTI_NODE, command=["true"])
    launch = make_launch(tmp_path, config)
    process = _start(command(launch))
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    folder = launch.paths.trainer_dir / SHOWN
    assert said == f"error: prime-rl's dry run wrote no rl.sbatch in {folder}\n"


@pytest.mark.parametrize(
    ("folder", "error"),
    [("my vllm runs", "holds `vllm`"), ("prime_rl_runs", "holds `prime_rl`"), ("a b", "a space")],
)
def test_a_path_that_the_multi_node_script_cannot_bear_is_refused(
    tmp_path: Path, folder: str, error: str
) -> None:
    config = expand_document(tmp_path, MULTI_NODE)
    with pytest.raises(HarnessError, match=error):
        command(make_launch(tmp_path / folder, config))


def test_a_broken_setup_does_not_start_the_program(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "checkout")
    (checkout / ".env").write_text("false\n")
    config = expand_document(tmp_path, {}, command=["echo", "started"])
    process = _start(command(make_launch(tmp_path, config)))
    assert process.communicate(timeout=30)[0] == ""
    assert process.returncode == 1


def test_the_script_can_be_read_and_run_again_by_hand(tmp_path: Path) -> None:
    make_checkout(tmp_path / "checkout")
    config = expand_document(tmp_path, {}, command=["printenv", "PRL_RUN_ID", "UV_NO_SYNC"])
    launch = make_launch(tmp_path, config)
    command(launch)
    script = launch.inputs_dir / "launch.sh"
    assert script.read_text() == (
        "#!/usr/bin/env bash\n"
        "# Starts toy/ipo/seed_3, attempt 1, with prime-rl. Written by the harness, which executes"
        " it.\n"
        "set -e\n"
        f"cd {tmp_path}/checkout\n"
        "if [ -f .env ]; then source .env; fi\n"
        "if [ -f .venv/bin/activate ]; then source .venv/bin/activate; fi\n"
        "export UV_NO_SYNC=1\n"
        f"export PRL_RUN_ID={run_id(NAME)}\n"
        f"exec printenv PRL_RUN_ID UV_NO_SYNC @ {launch.inputs_dir}/rl.json\n"
    )
    done = subprocess.run(["bash", str(script)], cwd="/", capture_output=True, text=True)
    assert done.stdout == f"{run_id(NAME)}\n1\n"


def test_a_fork_starts_from_its_parents_checkpoint_until_it_has_one_of_its_own(
    tmp_path: Path,
) -> None:
    make_checkout(tmp_path / "checkout")
    config = expand_document(tmp_path, {"ckpt": {"interval": 5}})
    start = Start(tmp_path / "parent/checkpoints/step_10", 10)
    launch = dataclasses.replace(make_launch(tmp_path, config), start=start)
    command(launch)
    assert _read_document(launch)["resume"] == {"dir": str(start.checkpoint)}
    assert (
        f"starting from the checkpoint {start.checkpoint}"
        in (launch.inputs_dir / "launch.sh").read_text()
    )
    own = launch.paths.trainer_dir / SHOWN / "checkpoints/step_15"
    for name in ("trainer/.metadata", "orchestrator/progress.pt"):
        (own / name).parent.mkdir(parents=True)
        (own / name).write_text("")
    later = make_launch(tmp_path, config, attempt=2)
    command(dataclasses.replace(later, start=start))
    assert _read_document(later)["resume"] == {"step": 15}
