"""Every shipped sweep and overlay is what it claims to be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.config.compose import compose_all
from harness.config.conf_dir import load_conf
from harness.config.override import parse_overrides
from harness.records.model import CodeRecord
from harness.resources import CONF_DIR
from harness.sweep.plan import build_plan
from harness.sweep.spec import load_sweep
from harness.trainers.prime_rl.config_schema import check_document, read_schema
from harness.trainers.prime_rl.documents import read_document
from tests.harness.trainers.prime_rl.fake.checkout import make_checkout

SWEEPS = Path(__file__).parents[3] / "sweeps"
CODE = CodeRecord(hash="abc", commit=None, is_dirty=None, versions={})


@pytest.fixture(autouse=True, scope="module")
def _checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test double where sweeps of prime-rl look for its checkout."""
    folder = make_checkout(tmp_path_factory.mktemp("fake") / "checkout", git=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIME_RL_CHECKOUT", str(folder))
        yield


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_sweep_plans_and_its_arms_differ_in_the_loss_alone(path: Path) -> None:
    spec = load_sweep(path)
    plan = build_plan(spec, load_conf((CONF_DIR,)), (), CODE).record
    assert len(plan.runs) == len(spec.arms) * len(spec.seeds)
    assert {d.key.split(".")[0] for arm in plan.arms for d in arm.differs} == {"loss"}
    assert spec.question.endswith("?")


def test_the_demo_has_the_arms_of_the_page_and_at_least_eight_seeds() -> None:
    spec = load_sweep(SWEEPS / "ipo_vs_icepop.yaml")
    assert [arm.name for arm in spec.arms] == [
        "none",
        "ipo",
        "ipo_0.1",
        "icepop",
        "kpop",
        "ipo_band",
    ]
    assert len(spec.seeds) >= 8


@pytest.mark.parametrize(
    ("sweep", "nodes", "primary"),
    [
        ("glm45air_swe", 4, ("mismatch_kl", "solve_rate")),
        ("reverse_text", None, ("mismatch_kl", "solve_rate")),
    ],
)
def test_the_ablations_in_prime_rl_have_the_arms_of_the_page_and_windows_that_fit(
    sweep: str, nodes: int | None, primary: tuple[str, ...]
) -> None:
    spec = load_sweep(SWEEPS / f"{sweep}.yaml")
    plan = build_plan(spec, load_conf((CONF_DIR,)), (), CODE)
    losses = {run.arm: plan.configs[run.run_id]["loss"] for run in plan.record.runs}
    assert {
        arm: [
            loss["type"],
            *(loss[key] for key in ("eps", "ratio_low", "ratio_high", "phi") if key in loss),
        ]
        for arm, loss in losses.items()
    } == {
        "icepop": ["icepop", 0.2, 5.0],
        "ipo_0.3": ["ipo", 0.3],
        "ipo_0.2": ["ipo", 0.2],
        "ipo_0.1": ["ipo", 0.1],
        "kpop": ["kpop", 0.1],
    }
    assert (spec.baseline, spec.pairing, len(spec.seeds)) == ("icepop", "none", 3)
    assert spec.analysis.primary == primary
    last = spec.analysis.baseline_steps[1]
    assert {run.max_steps - spec.analysis.last_steps > last for run in plan.record.runs} == {True}
    assert {keys.get("nodes") for keys in spec.resources.values()} == ({nodes} if nodes else set())


def test_the_page_s_ablation_goes_on_beyond_the_step_at_which_icepop_broke() -> None:
    plan = build_plan(load_sweep(SWEEPS / "glm45air_swe.yaml"), load_conf((CONF_DIR,)), (), CODE)
    assert {run.max_steps for run in plan.record.runs} == {1500}


@pytest.mark.parametrize("path", sorted((CONF_DIR / "prime_rl").iterdir()), ids=lambda p: p.stem)
def test_a_shipped_base_has_keys_of_prime_rl_alone_and_none_that_the_harness_sets(
    path: Path,
) -> None:
    [composed] = compose_all(
        load_conf((CONF_DIR,)), [parse_overrides([f"experiment={path.stem}"], "test")]
    )
    trainer = composed.config["trainer"]
    assert trainer["replaced"] == {}
    assert trainer["native"] == read_document(path)
    check_document(trainer["native"], read_schema(Path(trainer["checkout"])))
    assert composed.config["model"]["name"] == trainer["native"]["model"]["name"]
    assert composed.config["task"]["name"] == "+".join(
        source["name"] for source in trainer["native"]["orchestrator"]["train"]["source"]
    )


@pytest.mark.parametrize("path", sorted((CONF_DIR / "prime_rl").iterdir()), ids=lambda p: p.stem)
def test_a_shipped_base_says_that_it_is_a_reconstruction_and_which_keys_are_inferred(
    path: Path,
) -> None:
    comments = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert any("reconstruction" in line for line in comments)
    assert sum("inferred" in line for line in comments) >= 2


@pytest.mark.parametrize("group", ["loss", "task", "model", "trainer", "overlay", "experiment"])
def test_every_option_says_in_its_first_comment_what_it_is_for(group: str) -> None:
    for option in load_conf((CONF_DIR,)).options[group].values():
        lines = option.path.read_text().splitlines()
        first = lines[1] if lines[0].startswith("# @package") else lines[0]
        assert first.startswith("# "), option.path
        assert "harness " in "\n".join(lines[:3]), option.path
