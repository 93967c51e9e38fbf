from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel holds, as pip would lay it out."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_wheel_composes_and_plans_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    composed = run(installed, tmp_path, "compose", "loss=icepop")
    assert (composed.returncode, composed.stderr) == (0, "")
    assert "loss.ratio_high: 5.0" in composed.stdout
    (tmp_path / "mine.yaml").write_text(
        "baseline: ipo\nseeds: [0]\narms:\n  ipo: [loss=ipo]\n  kpop: [loss=kpop]\n"
    )
    planned = run(installed, tmp_path, "plan", "mine.yaml")
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "2 runs = 2 arms x 1 seeds" in planned.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.yaml"]


@pytest.mark.slow
def test_the_wheel_holds_conf_and_slurm_as_data_and_no_sweeps(installed: Path) -> None:
    assert (installed / "harness/_data/conf/config.yaml").is_file()
    assert (installed / "harness/_data/conf/prime_rl/reverse_text.toml").is_file()
    assert (installed / "harness/_data/slurm/profiles/local.yaml").is_file()
    assert (installed / "harness/py.typed").is_file()
    assert (installed / "analysis/py.typed").is_file()
    assert not list(installed.rglob("ipo_vs_icepop.yaml"))
    top = {p.name for p in installed.iterdir() if not p.name.endswith(".dist-info")}
    assert top == {"harness", "analysis"}


@pytest.mark.slow
def test_the_wheel_runs_a_sweep_to_its_report(installed: Path, tmp_path: Path) -> None:
    program = ROOT / "tests" / "harness" / "programs" / "trains.py"
    (tmp_path / "mine.yaml").write_text(
        "baseline: ipo\n"
        "seeds: [0]\n"
        "common:\n"
        "  - trainer=command\n"
        "  - task=external\n"
        "  - model=external\n"
        "  - max_steps=3\n"
        f"  - \"trainer.argv=['{{python}}', '{program}', '{{trainer_dir}}/metrics.jsonl', '0']\"\n"
        "arms:\n"
        "  ipo: [loss=ipo]\n"
        "  kpop: [loss=kpop]\n"
    )
    done = run(installed, tmp_path, "run", "mine.yaml")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "outputs" / "mine" / "report" / "report.html").is_file()
    [copy] = (tmp_path / "outputs" / "mine" / "code").iterdir()
    assert (copy / "harness" / "runner" / "main.py").is_file()
    assert not (copy / "harness" / "_data").exists()
