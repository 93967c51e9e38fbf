"""harness power on sweep files, with earlier runs that say that they are stand-ins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analysis.conftest import Behaviour, make_sweep
from tests.analysis.foreign_runs import prime_rl_run
from tests.harness.cli.shell import Shell

SWEEP = """
question: which loss?
baseline: none
seeds: [0, 1, 2, 3]
arms: {none: [loss=none], ipo: [loss=ipo], icepop: [loss=icepop]}
pairing: seed
analysis: {last_steps: 20, baseline_steps: [5, 20], collapse_window: 10, margin: 0.05}
"""
LEVELS = (0.52, 0.61, 0.58, 0.66, 0.55, 0.49)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.write(SWEEP)
    return shell


@pytest.fixture
def earlier(shell: Shell) -> str:
    def none(seed: int) -> Behaviour:
        return Behaviour(level=LEVELS[seed], collapses_at=60 if seed == 5 else None, gpus=("0",))

    def ipo(seed: int) -> Behaviour:
        return Behaviour(level=LEVELS[-1 - seed], gpus=("0",))

    root = make_sweep(shell.folder, {"none": none, "ipo": ipo}, seeds=range(6))
    return f"{root.relative_to(shell.folder)}/"


def files(shell: Shell) -> set[Path]:
    return set(shell.folder.rglob("*"))


def test_earlier_runs_tell_noise_collapses_and_cost(shell: Shell, earlier: str) -> None:
    before = files(shell)
    code, out, err = shell.run("power", "study", "--from", earlier)
    assert (code, err) == (0, "")
    assert files(shell) == before
    lines = out.splitlines()
    assert lines[0] == "study: 2 arms against none, paired t, alpha 0.05, power 0.8"
    assert "of synthetic_stand_in without 1 that collapsed" in lines[2]
    assert "1 of 6 runs of none of synthetic_stand_in" in lines[4]
    assert lines[5].startswith("one seed of all 3 arms: 0.0500 GPU-hours; the median of 12")
    numbers = [line.split()[0] for line in lines if line[:7].strip().isdecimal()]
    assert numbers == ["2", "3", *map(str, range(5, 13)), "16", "24", "32"]
    assert any(line.split()[:2] == ["*", "4"] for line in lines)
    assert any(line.startswith("a difference of 0.0500 in solve rate needs: ") for line in lines)


def test_json_holds_the_same_at_the_seeds_that_are_asked_for(shell: Shell, earlier: str) -> None:
    command = ("power", "study", "--from", earlier, "--seeds", "4-5,9", "--json")
    code, out, err = shell.run(*command)
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert [row["seeds"] for row in record["tables"][0]["rows"]] == [4, 5, 9]
    assert (record["family"], record["levels"]) == (8, [0.05, 0.05 / 8])
    assert shell.run(*command)[1] == out
    higher = json.loads(shell.run(*command, "--power", "0.9")[1])
    first, second = (r["tables"][0]["rows"][0]["found"][0]["difference"] for r in (record, higher))
    assert first < second


def test_stated_noise_needs_no_runs(shell: Shell) -> None:
    code, out, err = shell.run(
        "power", "study", "--sd", "solve_rate=0.05", "--share", "0.5", "--gpu-hours-per-run", "100"
    )
    assert (code, err) == (0, "")
    assert "sd 0.0707; the stated 0.05 of the seeds of an arm, times the root of 2" in out
    assert "one seed of all 3 arms: 300 GPU-hours; 100 GPU-hours per run, as stated" in out
    assert "nothing tells the noise of mismatch KL: --sd mismatch_kl=X states it" in out


def test_unpaired_seeds_are_held_against_the_stated_noise_itself(shell: Shell) -> None:
    shell.write(SWEEP.replace("pairing: seed", "pairing: none"))
    out = shell.run("power", "study", "--sd", "solve_rate=0.05", "--json")[1]
    record = json.loads(out)
    assert (record["test"], record["tables"][0]["spread"]["sd"]) == ("Welch t", 0.05)


def test_a_profile_tells_gpu_hours_by_its_limits(shell: Shell) -> None:
    (shell.folder / "big.yaml").write_text("type: slurm\ngpus_per_node: 8\nnodes: 2\ntime: 90\n")
    stated = ("power", "study", "--sd", "solve_rate=0.05", "--json")
    record = json.loads(shell.run(*stated, "--on", "big.yaml")[1])
    assert record["cost"]["per_seed"] == 3 * 16 * 1.5
    code, out, err = shell.run(*stated, "--on", "local")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: `local` is a queue on this machine without limits",
        "hint: state it with --gpu-hours-per-run X",
    ]


def test_foreign_runs_tell_noise_too_even_of_one_arm(shell: Shell) -> None:
    for seed in range(4):
        prime_rl_run(shell.folder / f"ipo_{seed}", seed=seed, level=0.6 + 0.05 * seed)
    code, out, err = shell.run("power", "study", "--from", "ipo=ipo_*", "--json")
    assert code == 0, err
    spread = json.loads(out)["tables"][0]["spread"]
    assert spread["df"] == 3
    assert "unrelated seeds of an arm, of foreign runs" in spread["source"]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_picture_is_drawn_where_it_is_asked_for(shell: Shell, suffix: str) -> None:
    plot = f"power{suffix}"
    code, _, err = shell.run("power", "study", "--sd", "solve_rate=0.05", "--plot", plot)
    assert (code, err) == (0, f"plot: {plot}\n")
    start = (shell.folder / plot).read_bytes()[:5]
    assert start == (b"\x89PNG\r" if suffix == ".png" else b"<?xml")


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        ((), "nothing tells the noise", "--from RUNS"),
        (("--sd", "solve_rate=0"), "a standard deviation is above 0", "solve_rate=0.05"),
        (("--sd", "solve_rate=-1"), "a standard deviation is above 0", ""),
        (("--sd", "solve_rate=nan"), "want METRIC=NUMBER", "--sd solve_rate=0.05"),
        (("--sd", "solve_rate"), "want METRIC=NUMBER", ""),
        (("--sd", "solve_rat=1"), "the sweep judges no `solve_rat`", "`solve_rate`"),
        (("--sd", "entropy=1"), "the sweep judges no `entropy`", "`mismatch_kl`, `solve_rate`"),
        (("--sd", "solve_rate=1", "--sd", "solve_rate=2"), "`solve_rate` is named twice", ""),
        (("--share", "0.2", "--to", "solve_rate=1.5"), "no difference that it can have", ""),
        (("--share", "0.2", "--to", "mismatch_kl=1"), "no ratio other than 1", "=1.5"),
        (("--share", "0.2", "--to", "collapsed=0.9"), "no share lies that far", "at most 0.8"),
        (("--share", "1.2"), "'1.2' is not a number above 0 and up to 1", ""),
        (("--share", "0.2", "--seeds", "1,2"), "no list of numbers from 2 to 200", ""),
        (("--share", "0.2", "--seeds", "3-"), "no list of numbers of seeds", ""),
        (("--share", "0.2", "--power", "0.1"), "not a number from 0.5 to 0.999", ""),
        (("--share", "0.2", "--plot", "power.pdf"), "no file for a picture", "power.png"),
        (("--from", "study"), "the sweep `study` has not been run", "harness run study"),
        (("--from", "=x"), "want a sweep, or ARM=SOURCE", ""),
        (
            ("--share", "0.2", "--on", "local", "--gpu-hours-per-run", "1"),
            "--on and --gpu-hours-per-run both tell the cost",
            "",
        ),
    ],
)
def test_nonsense_is_refused_by_one_line_and_nothing_is_written(
    shell: Shell, more: tuple[str, ...], message: str, hint: str
) -> None:
    before = files(shell)
    code, out, err = shell.run("power", "study", *more)
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert len(lines) == 2, err
    assert message in lines[0]
    assert hint in lines[1]
    assert files(shell) == before


def test_runs_that_don_t_tell_the_noise_are_refused(shell: Shell) -> None:
    bare = {"none": Behaviour(drops=("mismatch_kl/all/mean",))}
    root = make_sweep(shell.folder, bare, seeds=range(3))
    code, _, err = shell.run("power", "study", "--from", f"{root}/")
    assert code == 2
    assert err.splitlines() == [
        "error: no run of `synthetic_stand_in` logs `mismatch_kl`",
        "hint: state the standard deviation of its natural logs with --sd mismatch_kl=X",
    ]
    assert shell.run("power", "study", "--from", f"{root}/", "--sd", "mismatch_kl=0.4")[0] == 0


def test_a_sweep_of_one_arm_compares_nothing(shell: Shell) -> None:
    shell.write("baseline: none\nseeds: [0]\narms: {none: [loss=none]}\n")
    code, _, err = shell.run("power", "study", "--share", "0.2")
    assert code == 2
    assert err.startswith("error: `study` has one arm, so nothing is compared\n")
