"""The exported file: alone with torch, equal to this project's losses, made once and alike."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from harness.losses import masks
from harness.trainers.prime_rl.export_loss import (
    LOSS_FILE,
    LOSS_IMPORT_PATH,
    export_source,
    write_loss_file,
)
from tests.harness.losses.test_policy import (
    VARIANTS,
    Batch,
    flat,
    make_random_batch,
    reference_loss,
    run_loss,
    variant_id,
)
from tests.harness.trainers.prime_rl.exported_loss import (
    DTYPES,
    HERE,
    gradient_of,
    load_file,
    make_sequence,
    make_tensors,
)
from tests.harness.trainers.prime_rl.loss_stand_in import make_inputs


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load_file(write_loss_file(tmp_path_factory.mktemp("exported"), "0123abcd"))


# ---------------------------------------------------------------- alone, and equal


def make_case(knobs: dict[str, Any], batch: Batch, dtype: str) -> dict[str, Any]:
    return {**dataclasses.asdict(batch), "dtype": dtype, "kwargs": knobs}


def run_alone(folder: Path, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run `cases` where torch can be imported, but not this project: another `harness` is first."""
    clash_dir = folder.with_name("clash")
    clash_dir.mkdir()
    (clash_dir / "harness.py").write_text("IS_FOREIGN = True\n")
    folders = [clash_dir, folder, HERE, Path(torch.__file__).parents[1]]
    command = [sys.executable, "-I", "-S", str(HERE / "run_alone.py"), *map(str, folders)]
    done = subprocess.run(
        command, input=json.dumps(cases), capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


def round_to_float32(batch: Batch) -> Batch:
    lp, lq = (torch.tensor(x, dtype=torch.float32).tolist() for x in (batch.lp, batch.lq))
    return Batch(lp, lq, batch.advantages, batch.loss_mask)


def test_alone_the_losses_equal_this_project_and_the_reference(tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    folder.mkdir()
    write_loss_file(folder)
    assert [path.name for path in folder.iterdir()] == [LOSS_FILE]
    batches = {
        "float64": [make_random_batch(seed, max_log_ratio=4.0) for seed in range(2)],
        "float32": [
            round_to_float32(make_random_batch(seed, max_log_ratio=20.0)) for seed in range(2)
        ],
    }
    tasks = [
        (knobs, batch, dtype) for knobs in VARIANTS for dtype in batches for batch in batches[dtype]
    ]
    results = run_alone(folder, [make_case(*task) for task in tasks])
    assert len(results) == len(tasks) == 4 * len(VARIANTS)
    for (knobs, batch, dtype), found in zip(tasks, results, strict=True):
        label = f"{knobs} {dtype}"
        tolerance = 1e-6 if dtype == "float64" else 1e-5
        num_tokens = sum(map(sum, batch.loss_mask))
        loss, gradient, masked = reference_loss(knobs, batch)
        assert found["dtype"] == f"torch.{dtype}", label
        assert found["loss"] == pytest.approx(loss * num_tokens, rel=tolerance), label
        expected = [slope * num_tokens for slope in flat(gradient)]
        assert flat(found["gradient"]) == pytest.approx(expected, rel=tolerance, abs=1e-11), label
        shares = [
            sum(hits) / max(sum(mask), 1)
            for hits, mask in zip(masked, batch.loss_mask, strict=True)
        ]
        assert found["metrics"]["is_masked"] == pytest.approx(shares, rel=1e-6), label

        ours, our_gradient = run_loss(knobs, batch, DTYPES[dtype])
        exact = 1e-12 if dtype == "float64" else 1e-6
        assert found["loss"] == pytest.approx(ours.loss.item() * num_tokens, rel=exact), label
        expected = [slope * num_tokens for slope in flat(our_gradient)]
        assert flat(found["gradient"]) == pytest.approx(expected, rel=exact, abs=1e-11), label


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("knobs", VARIANTS, ids=variant_id)
def test_masks_are_equal_bit_for_bit(
    exported: ModuleType, knobs: dict[str, Any], dtype: torch.dtype
) -> None:
    for seed in range(3):
        batch = make_random_batch(seed, max_log_ratio=6.0)
        lp, lq, advantages, loss_mask = make_tensors(batch, dtype)
        # Tokens on the bounds of the rules, and tokens that are not finite.
        ratios = torch.tensor([0.2, 0.5, 0.8, 1.2, 1.28, 2.0, 5.0], dtype=dtype)
        lp = lp.detach()
        lp[0], lq[0] = ratios.log() - 9, -9.0
        lp[1], lq[1] = math.log(0.9), math.log(0.6)
        lp[2, :3], lq[2, 2:4] = math.nan, -math.inf
        options = {"advantages": advantages, "loss_mask": loss_mask}
        for name in ("drop_mask", "clip_mask"):
            ours = getattr(masks, name)(knobs, lp, lq, **options)
            theirs = getattr(exported, name)(knobs, lp, lq, **options)
            assert (ours is None) == (theirs is None)
            assert ours is None or torch.equal(ours, theirs)
        ours, theirs = masks.cap_mask(knobs, lp, lq), exported.cap_mask(knobs, lp, lq)
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["ipo", "icepop", "kpop", "ipo_band", "none", "ppo", "gspo"])
def test_gradient_passes_gradcheck(exported: ModuleType, name: str) -> None:
    """Losses without a detached weight; no cap is reached here."""
    batch = make_random_batch(11, max_log_ratio=3.0, lowest=-6.0)
    lp, lq, advantages, loss_mask = make_tensors(batch, torch.float64)
    for i in range(6):

        def loss_of(trainer_logprobs: torch.Tensor, i: int = i) -> Any:
            inputs = make_inputs(trainer_logprobs, lq[i], advantages[i], loss_mask[i])
            return exported.compute(inputs, type=name).loss

        assert torch.autograd.gradcheck(loss_of, lp[i].detach().requires_grad_(), eps=1e-7)


@pytest.mark.parametrize("name", ["dppo_tv", "dppo_kl", "cispo", "tis"])
def test_gradient_with_a_detached_weight_is_weight_times_advantage(
    exported: ModuleType, name: str
) -> None:
    """r = 1.2, 1.25 and 6 at low probability: no rule drops or cuts them, but `tis` at 2."""
    pairs = [(math.log(p), math.log(q)) for p, q in ((0.012, 0.01), (0.05, 0.04), (0.006, 0.001))]
    inputs = make_sequence(pairs, [2.0, -1.0, 1.0])
    knobs = {"ratio_high": 8.0} if name == "cispo" else {}
    outputs = exported.compute(inputs, type=name, **knobs)
    last = 2.0 if name == "tis" else 6.0
    assert gradient_of(outputs.loss, inputs) == pytest.approx([-2.4, 1.25, -last], rel=1e-9)


# ---------------------------------------------------------------- the file


def test_export_is_deterministic_and_names_its_origin() -> None:
    source = export_source("0123abcd")
    assert source == export_source("0123abcd")
    command = [sys.executable, "-c", f"import {export_source.__module__} as m, sys; "]
    command[-1] += (
        "sys.stdout.write(m.export_source('0123abcd')); assert 'torch' not in sys.modules"
    )
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": str(HERE.parents[3])}
        again = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert again.stdout == source
    header = ast.get_docstring(ast.parse(source)) or ""
    assert "code 0123abcd" in header
    assert "torch alone" in header
    assert LOSS_IMPORT_PATH in header
    assert "not named" in export_source()


def test_file_parses_as_python_3_11_and_imports_torch_alone() -> None:
    tree = ast.parse(export_source(), feature_version=(3, 11))
    roots = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or "").partition(".")[0])
    assert {root for root in roots if root not in sys.stdlib_module_names} == {"torch"}


def test_file_holds_the_definitions_text_for_text() -> None:
    source = export_source()
    root = HERE.parents[3] / "harness"
    policy = (root / "losses/policy.py").read_text()
    for path, text in ((root / "losses/masks.py", ""), (root / "losses/policy.py", policy)):
        for node in ast.parse(text or path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and f"def {node.name}(" in source:
                segment = ast.get_source_segment(text or path.read_text(), node)
                assert segment is not None
                assert segment.replace(" masks.drop_mask", " drop_mask") in source, node.name


def test_writing_again_leaves_the_file_alone(tmp_path: Path) -> None:
    path = write_loss_file(tmp_path, "a")
    before = path.stat()
    assert write_loss_file(tmp_path, "a") == path
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino
    write_loss_file(tmp_path, "b")
    assert "code b" in path.read_text()


@pytest.mark.skipif(
    not Path(sys.executable).with_name("ruff").exists(), reason="ruff is not installed"
)
def test_file_is_clean_for_ruff(tmp_path: Path) -> None:
    path = write_loss_file(tmp_path)
    ruff = Path(sys.executable).with_name("ruff")
    config = HERE.parents[3] / "pyproject.toml"
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [ruff, *command, "--no-cache", "--config", config, path],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
