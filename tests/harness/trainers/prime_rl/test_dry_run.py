"""Dry runs of real processes: small test doubles of prime-rl's `rl`."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from harness.errors import HarnessError, UsageError
from harness.trainers.prime_rl.dry_run import Resolved, can_run, dry_run
from tests.harness.conftest import wait_until
from tests.harness.trainers.prime_rl.dry_run_double import RESOLVES, make_program, make_rl

DOCUMENT: dict[str, Any] = {
    "run": {"name": "s-ipo-s0"},
    "output_dir": "/nonexistent",
    "trainer": {"loss": {"type": "ipo", "eps": 0.3}},
    "deployment": {"num_train_gpus": 2},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def resolve(
    command: tuple[str, ...], folder: Path, document: dict[str, Any] = DOCUMENT, **options: Any
) -> Resolved:
    return dry_run(command, folder.parent, document, folder, {}, **options)


def refused(command: tuple[str, ...], folder: Path, **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        resolve(command, folder, **options)
    return caught.value.message


def test_the_resolved_parts_are_read_with_what_prime_rl_does_not_write(folder: Path) -> None:
    resolved = resolve(make_rl(folder.parent), folder)

    assert resolved == Resolved(
        config={
            "run": {"name": "s-ipo-s0"},
            "output_dir": "<folder>/outputs",
            "deployment": {"num_train_gpus": 2},
            "trainer": {
                "loss": {"type": "ipo", "eps": 0.3},
                "output_dir": "<folder>/outputs/s-ipo-s0",
                "dtype": "bfloat16",
            },
            "orchestrator": {"batch_size": 128},
        },
        has_script=False,
        nodes=None,
    )


@pytest.mark.parametrize("layout", ["configs/latest/resolved", "configs/attempt_12/resolved"])
def test_newer_layouts_are_read(layout: str, folder: Path) -> None:
    body = (
        f"write('trainer.json', {{'a': 'new'}}, {layout!r})\n"
        "write('trainer.json', {'a': 'old'}, 'configs/attempt_2/resolved')\n"
        "write('rl.toml', 'a = 1', 'configs/attempt_12')\n"
    )

    assert resolve(make_rl(folder.parent, body), folder).config["trainer"] == {"a": "new"}


def test_the_whole_resolved_document_is_read_where_that_is_all(folder: Path) -> None:
    body = "write('rl.json', {'trainer': {'a': 1}, 'seq_len': 8})\n"

    config = resolve(make_rl(folder.parent, body), folder).config

    assert (config["trainer"], config["seq_len"]) == ({"a": 1}, 8)


@pytest.mark.parametrize("place", ["rl.sbatch", "launcher/rl.sbatch"])
@pytest.mark.parametrize(
    ("line", "nodes"),
    [("#SBATCH --nodes=4", 4), ("#SBATCH -N 4", 4), ("#SBATCH --nodes 4", 4), ("# nodes=4", None)],
)
def test_a_rendered_script_is_reported_with_its_nodes(
    place: str, line: str, nodes: int | None, folder: Path
) -> None:
    script = f"#!/bin/bash\n#SBATCH --job-name=x\n{line}\nsrun x\n"
    body = f"{RESOLVES}write({place!r}, {script!r}, '.')\n"

    resolved = resolve(make_rl(folder.parent, body), folder)

    assert (resolved.has_script, resolved.nodes) == (True, nodes)


def test_checkpoints_go_into_the_folder_of_the_dry_run(folder: Path) -> None:
    body = f"Path(document['ckpt']['output_dir']).mkdir(parents=True)\n{RESOLVES}"
    document = {**DOCUMENT, "ckpt": {"output_dir": str(folder.parent / "real")}}

    resolve(make_rl(folder.parent, body), folder, document)

    assert (folder / "checkpoints").is_dir()
    assert not (folder.parent / "real").exists()


def test_the_program_is_started_in_the_checkout_without_a_sync_and_with_a_fixed_id(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    body = (
        "names = ['PRL_RUN_ID', 'UV_NO_SYNC', 'WANDB_MODE', 'MINE']\n"
        "write('rl.json', {'cwd': os.getcwd(), 'env': {n: os.environ[n] for n in names}})\n"
    )
    command = make_rl(folder.parent, body)

    config = dry_run(command, folder.parent, DOCUMENT, folder, {"MINE": "x"}).config

    assert config["cwd"] == str(folder.parent)
    assert config["env"] == {
        "PRL_RUN_ID": "0" * 32,
        "UV_NO_SYNC": "1",
        "WANDB_MODE": "offline",
        "MINE": "x",
    }


def test_the_exported_loss_can_be_found_by_a_custom_loss(folder: Path) -> None:
    body = (
        "entries = os.environ['PYTHONPATH'].split(os.pathsep)\n"
        "found = [(Path(e) / 'ablation_loss.py').is_file() for e in entries]\n"
        "write('rl.json', {'found': found, 'last': entries[-1]})\n"
    )
    loss = {"type": "custom", "import_path": "ablation_loss.compute", "kwargs": {"type": "kpop"}}
    document = {**DOCUMENT, "trainer": {"loss": loss}}

    config = dry_run(
        make_rl(folder.parent, body), folder.parent, document, folder, {"PYTHONPATH": "/mine"}
    ).config

    assert (config["found"], config["last"]) == ([True, False], "/mine")


def test_programs_of_the_checkout_s_own_environment_are_found(folder: Path) -> None:
    make_rl(folder.parent / ".venv" / "bin")

    assert can_run(("rl",), folder.parent, {}) is None
    assert resolve(("rl",), folder).config["orchestrator"] == {"batch_size": 128}


def test_a_refused_key_is_named_with_prime_rl_s_message(folder: Path) -> None:
    body = (
        "print('1 validation error for RLConfig\\ntrainer.loss.eps\\n'\n"
        "      '  Extra inputs are not permitted [type=extra_forbidden, input_value=1,'\n"
        "      ' input_type=int]', file=sys.stderr)\n"
        "sys.exit(1)\n"
    )

    assert refused(make_rl(folder.parent, body), folder) == (
        "prime-rl refuses it: trainer.loss.eps: Extra inputs are not permitted"
    )


def test_what_the_environment_lacks_is_no_matter_of_keys(folder: Path) -> None:
    body = "raise ModuleNotFoundError('taskset x not found')\n"

    with pytest.raises(UsageError) as caught:
        resolve(make_rl(folder.parent, body), folder)

    assert caught.value.message == ("prime-rl refuses it: ModuleNotFoundError: taskset x not found")
    assert "does its environment have" in caught.value.hint


def test_a_silent_failure_says_the_exit_code(folder: Path) -> None:
    assert refused(make_rl(folder.parent, "sys.exit(3)\n"), folder) == (
        "prime-rl refuses it: exit code 3, without a word"
    )


def test_a_program_that_hangs_is_ended(folder: Path) -> None:
    said = refused(make_rl(folder.parent, "time.sleep(600)\n"), folder, timeout_s=0.2)

    assert said == "prime-rl's dry run did not end within 0.2 s"


def test_a_dry_run_that_is_stopped_leaves_no_process_behind(folder: Path) -> None:
    body = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "pids = Path(sys.argv[2]).parent / 'pids'\n"
        "pids.with_suffix('.new').write_text(f'{os.getpid()} {child.pid}')\n"
        "pids.with_suffix('.new').rename(pids)\n"
        "time.sleep(600)\n"
    )
    pids = folder / "pids"
    stop = Event()

    def stop_once_started() -> None:
        wait_until(pids.is_file)
        stop.set()

    watcher = Thread(target=stop_once_started)
    watcher.start()
    with pytest.raises(HarnessError, match="stopped"):
        resolve(make_rl(folder.parent, body), folder, stop=stop)
    watcher.join()

    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    wait_until(lambda: all(map(is_gone, started)))


def test_a_dry_run_that_writes_nothing_is_refused(folder: Path) -> None:
    assert refused(make_rl(folder.parent, "pass\n"), folder) == (
        "prime-rl's dry run ended well, but left no resolved configuration in"
        " `outputs/s-ipo-s0/configs`"
    )


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_a_part_that_is_no_table_is_refused(content: str, folder: Path) -> None:
    assert refused(make_rl(folder.parent, f"write('trainer.json', {content!r})\n"), folder) == (
        "prime-rl's dry run wrote a `trainer.json` that is no JSON table"
    )


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    assert can_run(("no-such-uv", "run", "rl"), tmp_path, {}) == (
        "there is no program `no-such-uv` on this machine"
    )


def test_a_program_is_looked_for_where_the_config_s_path_says(tmp_path: Path) -> None:
    make_rl(tmp_path / "programs")

    assert can_run(("rl",), tmp_path, {"PATH": str(tmp_path / "programs")}) is None
    assert can_run(("programs/rl",), tmp_path, {}) is None


def test_uv_makes_no_environment_in_a_checkout_that_has_none(tmp_path: Path) -> None:
    command = (*make_program(tmp_path / "bin" / "uv", "#!/bin/sh\nexit 0\n"), "run", "rl")

    assert can_run(command, tmp_path, {}) == (
        f"`{tmp_path}` has no environment yet (`uv sync` makes it)"
    )
    assert can_run(command, tmp_path, {"UV_PROJECT_ENVIRONMENT": "/x"}) is None


def test_a_program_that_crashes_on_import_says_why(tmp_path: Path) -> None:
    said = "Traceback (most recent call last):\n  File\nImportError: no torch"
    text = f"#!/bin/sh\ncat <<END\n{said}\nEND\nexit 1\n"
    command = make_program(tmp_path / "rl", text)

    assert can_run(command, tmp_path, {}) == f"`{command[0]} --help` fails: ImportError: no torch"


def test_a_probe_that_hangs_says_so(tmp_path: Path) -> None:
    command = make_program(tmp_path / "rl", "#!/bin/sh\nsleep 600\n")

    assert can_run(command, tmp_path, {}, timeout_s=0.2) == (
        f"`{command[0]} --help` did not end within 0.2 s"
    )


def test_a_program_that_is_none_says_so(tmp_path: Path) -> None:
    command = make_program(tmp_path / "rl", "\x7fELF nonsense")

    assert can_run(command, tmp_path, {}) == (
        f"`{command[0]} --help` can't be started: Exec format error"
    )


def test_nothing_but_the_folder_is_written_to(folder: Path) -> None:
    command = make_rl(folder.parent)
    before = sorted(folder.parent.iterdir())

    resolve(command, folder)

    assert sorted(folder.parent.iterdir()) == before
    assert json.loads((folder / "rl.json").read_text())["output_dir"] == str(folder / "outputs")


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that only waits to be reaped has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return True
    return state == "Z"
