from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.records.model import KeyDifference
from harness.sweep.difference import find_differences
from harness.trainers.prime_rl.expand import expand
from tests.harness.trainers.prime_rl.arms import expand_document, make_checkout, make_config

BASE = """\
max_steps = 1000
clean = false

[slurm]
job_name = "mine"

[trainer.loss]
type = "ipo"
ipo_threshold = 0.1

[orchestrator]
batch_size = 256

[[orchestrator.train.source]]
name = "swe"

[[orchestrator.train.source]]
name = "math"
weight = 1
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "checkout")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.toml"
    path.write_text(BASE)
    return path


def _refusal(config: dict[str, Any]) -> UsageError:
    with pytest.raises(UsageError) as raised:
        expand(config)
    assert "\n" not in raised.value.message
    assert raised.value.hint
    return raised.value


def test_files_native_and_patch_become_one_tree_and_the_rest_of_the_config_stays(
    checkout: Path, base: Path, tmp_path: Path
) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("orchestrator: {batch_size: 128}\nckpt: {}\n")
    config = make_config(
        checkout,
        base,
        overlay,
        native={"orchestrator": {"group_size": 16}, "seq_len": None},
        patch=["orchestrator.train.source.1.weight=2", "~ckpt"],
    )
    before = copy.deepcopy(config)
    expanded = expand(config)
    assert config == before
    assert expanded == {
        **config,
        "trainer": {
            **config["trainer"],
            "checkout": str(checkout),
            "base": [],
            "patch": [],
            "native": {
                "slurm": {},
                "orchestrator": {
                    "batch_size": 128,
                    "group_size": 16,
                    "train": {"source": [{"name": "swe"}, {"name": "math", "weight": 2}]},
                },
                "seq_len": None,
            },
            "replaced": {
                "trainer.loss.type": "ipo",
                "trainer.loss.ipo_threshold": 0.1,
                "max_steps": 1000,
                "slurm.job_name": "mine",
            },
            "sources": [
                f"`{base}`",
                f"`{overlay}`",
                "`trainer.native`",
                "`orchestrator.train.source.1.weight=2`",
                "`~ckpt`",
            ],
        },
    }


def test_a_list_of_tables_is_replaced_as_a_whole_as_prime_rl_does(
    checkout: Path, base: Path, tmp_path: Path
) -> None:
    overlay = tmp_path / "overlay.toml"
    overlay.write_text('[[orchestrator.train.source]]\nname = "code"\n')
    native = expand(make_config(checkout, base, overlay))["trainer"]["native"]
    assert native["orchestrator"]["train"]["source"] == [{"name": "code"}]


def test_bases_that_differ_in_names_and_loss_alone_expand_to_the_same_tree(
    tmp_path: Path,
) -> None:
    plain = expand_document(tmp_path, {"orchestrator": {"batch_size": 8}})
    document = {
        "run": {"name": "x"},
        "max_steps": 7,
        "trainer": {"loss": {"type": "icepop", "eps": 1}},
        "orchestrator": {"batch_size": 8, "max_steps": 7},
    }
    named = expand_document(tmp_path, document)
    assert named["trainer"]["native"] == plain["trainer"]["native"]


def test_a_version_as_a_number_means_what_it_means_as_text(tmp_path: Path) -> None:
    number = expand_document(tmp_path, {}, loss_version=2798)
    assert number == expand_document(tmp_path, {}, loss_version="2798")
    assert number["trainer"]["loss_version"] == "2798"


def test_arms_differ_in_the_keys_of_prime_rl_alone(tmp_path: Path) -> None:
    one = expand_document(tmp_path, {"orchestrator": {"batch_size": 8}})
    native = {"orchestrator": {"batch_size": 16}}
    document = {"orchestrator": {"batch_size": 8}, "run": {"name": "x"}}
    other = expand_document(tmp_path, document, native=native)
    assert find_differences(one, other) == (
        KeyDifference("trainer.native.orchestrator.batch_size", 8, 16),
    )


def test_a_file_is_found_from_the_current_folder(
    checkout: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(base.parent)
    assert expand(make_config(checkout, "base.toml"))["trainer"]["sources"] == ["`base.toml`"]


def test_a_missing_file_is_refused_with_the_near_miss(
    checkout: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(base.parent)
    error = _refusal(make_config(checkout, "bse.toml"))
    assert error.message.startswith("`trainer.base[0]` is 'bse.toml': there is no such file in")
    assert error.hint == "did you mean `base.toml`?"


def test_a_syntax_error_is_refused_with_file_and_line(checkout: Path, base: Path) -> None:
    base.write_text("a = 1\nb = = 2\n")
    error = _refusal(make_config(checkout, base))
    assert error.message.startswith(f"{base}:2: not valid TOML")


def test_an_overlay_without_effect_is_refused(checkout: Path, base: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.toml"
    overlay.write_text("[orchestrator]\nbatch_size = 256\n")
    error = _refusal(make_config(checkout, base, overlay))
    assert error.message == (
        f"`trainer.base[1]`: `{overlay}` has no effect: what it says stands there already"
    )


def test_an_overlay_of_loss_and_names_alone_is_refused_with_the_way_to_a_sweep(
    checkout: Path, base: Path, tmp_path: Path
) -> None:
    overlay = tmp_path / "icepop.toml"
    overlay.write_text('max_steps = 3\n[trainer.loss]\ntype = "icepop"\n[run]\nname = "icepop"\n')
    error = _refusal(make_config(checkout, base, overlay))
    assert "has no effect: the `loss` group states the loss" in error.message
    assert "harness import-toml" in error.hint


def test_a_patch_without_effect_is_refused(checkout: Path, base: Path) -> None:
    error = _refusal(make_config(checkout, base, patch=["orchestrator.batch_size=256"]))
    assert error.message.startswith("`trainer.patch`: `orchestrator.batch_size=256` has no effect")
    error = _refusal(make_config(checkout, base, patch=["run.name=a"]))
    assert "has no effect: the `loss` group" in error.message


def test_native_may_restate_the_base_but_not_name_runs(checkout: Path, base: Path) -> None:
    same = make_config(checkout, base, native={"orchestrator": {"batch_size": 256}})
    assert expand(same)["trainer"]["native"]["orchestrator"]["batch_size"] == 256
    error = _refusal(make_config(checkout, base, native={"trainer": {"loss": {"eps": 0.3}}}))
    assert error.message.startswith("`trainer.native` has no effect: the `loss` group")


def test_a_patch_that_leads_nowhere_is_refused(checkout: Path, base: Path) -> None:
    error = _refusal(make_config(checkout, base, patch=["orchestrator.train.source.2.weight=1"]))
    assert "`orchestrator.train.source` is a list of 2 items and has no `2`" in error.message


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"clean": True}, "`clean` is True"),
        ({"resume": {"step": 5}}, "`resume.step` is 5"),
        ({"monitors": {"file": "None"}}, "`monitors.file` is null"),
        ({"trainer": {"optim": {"max_norm": float("inf")}}}, "`trainer.optim.max_norm` is inf"),
        ({"orchestrator": [1]}, "`orchestrator` is [1], want a table"),
        ({"deployment": {"num_train_gpus": "2"}}, "`deployment.num_train_gpus` is '2'"),
        (
            {
                "deployment": {"type": "multi_node", "num_train_nodes": 1},
                "slurm": {"template_path": "gone.j2"},
            },
            "`slurm.template_path` is 'gone.j2', which is no file",
        ),
        (
            {"slurm": {"pre_run_command": "prime sandbox delete --label a"}},
            "names the label 'a', which is no label of a source",
        ),
    ],
)
def test_what_the_harness_cannot_run_is_refused(
    tmp_path: Path, document: dict[str, Any], error: str
) -> None:
    with pytest.raises(UsageError) as raised:
        expand_document(tmp_path, document)
    assert error in raised.value.message
    assert raised.value.hint


def test_a_loss_that_this_version_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`loss.max_importance_ratio` is 10, but prime-rl's `ipo`"):
        expand_document(tmp_path, {}, "3526", loss={"type": "ipo", "max_importance_ratio": 10.0})


def test_seed_keys_must_lead_somewhere(tmp_path: Path) -> None:
    keys = ["orchestrator.train.source.0.seed", "inference.vllm.seed"]
    document: dict[str, Any] = {"orchestrator": {"train": {"source": [{}]}}}
    expanded = expand_document(tmp_path, document, seed_keys=keys)
    assert expanded["trainer"]["native"] == document
    with pytest.raises(UsageError, match="trainer.seed_keys: .* is a list of 1 items"):
        expand_document(tmp_path, document, seed_keys=["orchestrator.train.source.1.seed"])
    with pytest.raises(
        UsageError, match="`trainer.seed_keys` names `max_steps`, which the harness"
    ):
        expand_document(tmp_path, document, seed_keys=["max_steps"])


def test_a_multi_node_checkout_has_no_space_in_its_path(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "my checkout")
    base = tmp_path / "base.toml"
    base.write_text('[deployment]\ntype = "multi_node"\nnum_train_nodes = 1\n')
    assert "multi-node script does not quote it" in _refusal(make_config(checkout, base)).message
