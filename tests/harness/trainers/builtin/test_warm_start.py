from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.errors import HarnessError
from harness.records.files import read_json, write_json
from harness.trainers.builtin.config import parse_config
from harness.trainers.builtin.model import make_model
from harness.trainers.builtin.tasks import make_task
from harness.trainers.builtin.warm_start import (
    StoppedError,
    WarmStart,
    load_or_make_warm_start,
    warm_start_key,
)

QUICK = {"trainer.warm_start": {"solve_rate": 0.3, "lr": 0.01, "eval_every": 10, "max_steps": 400}}


def make(folder: Path, config_tree: dict[str, Any], *, stop: bool = False) -> WarmStart:
    config = parse_config(config_tree)
    task = make_task(config.task)
    model = make_model(
        config.model, vocabulary_size=task.vocabulary_size, num_positions=task.num_positions
    )
    return load_or_make_warm_start(folder, config, task, model, should_stop=lambda: stop)


def test_warm_start_reaches_the_solve_rate_and_is_reproducible(
    tmp_path: Path, make_config: Any
) -> None:
    first = make(tmp_path / "one", make_config(QUICK))
    again = make(tmp_path / "two", make_config(QUICK))
    assert first.solve_rate >= 0.3
    assert first.steps > 0
    assert first.steps % 10 == 0
    assert torch.equal(first.parameters, again.parameters)
    assert (first.steps, first.solve_rate) == (again.steps, again.solve_rate)


def test_the_first_maker_decides(tmp_path: Path, make_config: Any) -> None:
    folder = tmp_path / "shared" / "warm_start-x"
    first = make(folder, make_config(QUICK))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    # Were it made again, asking it to stop would raise.
    second = make(folder, make_config(QUICK), stop=True)
    assert torch.equal(first.parameters, second.parameters)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_maker_that_comes_second_uses_what_is_published(
    tmp_path: Path, make_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "warm_start-x"
    published = make(folder, make_config(QUICK))
    # The other maker publishes between this one's look and its rename.
    shutil.move(folder, tmp_path / "aside")
    real_mkdir = Path.mkdir

    def mkdir_and_publish(self: Path, *args: Any, **kwargs: Any) -> None:
        real_mkdir(self, *args, **kwargs)
        if self.name.endswith(".tmp") and not folder.exists():
            shutil.move(tmp_path / "aside", folder)

    monkeypatch.setattr(Path, "mkdir", mkdir_and_publish)
    second = make(folder, make_config(QUICK))
    assert torch.equal(second.parameters, published.parameters)
    assert [path.name for path in tmp_path.iterdir()] == ["warm_start-x"]


def test_stopping_leaves_nothing(tmp_path: Path, make_config: Any) -> None:
    with pytest.raises(StoppedError):
        make(tmp_path / "warm", make_config(QUICK), stop=True)
    assert list(tmp_path.iterdir()) == []


def test_an_unreachable_solve_rate_is_an_error(tmp_path: Path, make_config: Any) -> None:
    config = make_config({"trainer.warm_start": {"solve_rate": 1.0, "max_steps": 3}})
    with pytest.raises(HarnessError, match=r"'reverse' did not reach .*solve_rate` 1\.0.*3") as e:
        make(tmp_path / "warm", config)
    assert e.value.exit_code == 1
    assert "trainer.warm_start.max_steps" in e.value.hint
    assert list(tmp_path.iterdir()) == []


def test_solve_rate_zero_is_no_warm_start(tmp_path: Path, make_config: Any) -> None:
    config = make_config({"trainer.warm_start": {"solve_rate": 0.0}})
    assert make(tmp_path / "warm", config).steps == 0


def test_damage_is_named(tmp_path: Path, make_config: Any) -> None:
    folder = tmp_path / "warm"
    make(folder, make_config(QUICK))
    (folder / "weights.pt").write_bytes(b"torn")
    with pytest.raises(HarnessError, match=r"weights\.pt` is damaged") as caught:
        make(folder, make_config(QUICK))
    assert f"remove `{folder}`" in caught.value.hint


def test_half_a_folder_is_named(tmp_path: Path, make_config: Any) -> None:
    folder = tmp_path / "warm"
    make(folder, make_config(QUICK))
    (folder / "weights.pt").unlink()
    with pytest.raises(HarnessError, match=r"weights\.pt` can't be read"):
        make(folder, make_config(QUICK))


def test_settings_of_another_warm_start_are_refused(tmp_path: Path, make_config: Any) -> None:
    folder = tmp_path / "warm"
    make(folder, make_config(QUICK))
    manifest = read_json(folder / "manifest.json")
    manifest["settings"]["seed"] = 1
    write_json(folder / "manifest.json", manifest)
    with pytest.raises(HarnessError, match="of other settings"):
        make(folder, make_config(QUICK))


SHAPING = {
    "task.length": 4,
    "task.num_symbols": 5,
    "model.dim": 16,
    "model.num_layers": 1,
    "model.num_active_experts": 2,
    "trainer.rollouts.temperature": 0.5,
    "trainer.warm_start.solve_rate": 0.4,
    "trainer.warm_start.lr": 0.02,
    "trainer.warm_start.batch_size": 32,
    "trainer.warm_start.eval_prompts": 100,
    "trainer.warm_start.eval_every": 5,
    "trainer.warm_start.max_steps": 401,
    "seed": 1,
}
NOT_SHAPING = {
    "loss": {"type": "ipo", "eps": 0.1},
    "trainer.optim.lr": 3.0,
    "trainer.rollouts.prompts": 7,
    "trainer.engine.staleness": 5,
    "trainer.engine.weights": "int4",
    "trainer.checkpoints": {"every": 3},
}


@pytest.mark.parametrize("key", sorted(SHAPING))
def test_key_depends_on_what_shapes_the_warm_start(make_config: Any, key: str) -> None:
    plain = warm_start_key(parse_config(make_config()))
    assert warm_start_key(parse_config(make_config({key: SHAPING[key]}))) != plain


@pytest.mark.parametrize("key", sorted(NOT_SHAPING))
def test_key_does_not_depend_on_the_rest(make_config: Any, key: str) -> None:
    plain = warm_start_key(parse_config(make_config()))
    assert warm_start_key(parse_config(make_config({key: NOT_SHAPING[key]}))) == plain


def test_key_is_the_same_whether_defaults_are_stated(make_config: Any) -> None:
    stated = make_config({"trainer.warm_start.batch_size": 64, "trainer.rollouts.temperature": 1})
    assert warm_start_key(parse_config(stated)) == warm_start_key(parse_config(make_config()))
