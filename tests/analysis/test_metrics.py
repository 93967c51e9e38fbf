from __future__ import annotations

import pytest

from analysis.metrics import METRICS, is_metric_key, metric_spec, resolve_keys


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("solve_rate", "train/reverse/all/agent/reward/mean"),
        ("solve_rate", "train/reverse/all/reward/mean"),
        ("solve_rate", "reward/all/mean"),
        ("solve_rate_effective", "train/scaleswe/effective/agent/reward/mean"),
        ("mismatch_kl", "mismatch_kl/all/mean"),
        ("mismatch_kl_sampled", "mismatch_kl/sampled/mean"),
        ("is_masked", "is_masked/mean"),
        ("is_masked_token", "is_masked/token_mean"),
        ("entropy", "entropy/all/mean"),
        ("grad_norm", "optim/grad_norm"),
        ("importance_ratio_max_kept", "importance_ratio/max_kept"),
        ("token_class_rise", "token_class/rise"),
        ("token_class_drop", "token_class/drop"),
        ("staleness", "off_policy/mean"),
        ("throughput", "perf/throughput"),
        ("solve_rate", "solve_rate"),
    ],
)
def test_a_trainer_key_is_found_for_its_metric(name: str, key: str) -> None:
    assert is_metric_key(key)
    assert resolve_keys({key, "other"}, {}).keys[name] == key


def test_keys_that_mean_something_else_are_not_taken() -> None:
    others = {"mismatch_kl/all/max", "is_masked/max", "train/reverse/all/agent/reward/max"}
    assert resolve_keys(others, {}).keys == {}


def test_solve_rate_falls_back_to_the_effective_one_by_name_only_where_nothing_counts_all() -> None:
    effective, whole = "train/a/effective/agent/reward/mean", "train/a/all/agent/reward/mean"
    alone = resolve_keys({effective}, {})
    assert (alone.keys["solve_rate"], alone.definitions["solve_rate"]) == (effective, "effective")
    both = resolve_keys({effective, whole}, {})
    assert (both.keys["solve_rate"], both.definitions["solve_rate"]) == (whole, "")
    assert both.keys["solve_rate_effective"] == effective


@pytest.mark.parametrize(
    ("framework", "key", "name", "definition"),
    [
        ("verl", "rollout_corr/k3_kl", "mismatch_kl", ""),
        ("verl", "rollout_corr/kl", "mismatch_kl", "k1"),
        ("verl", "critic/score/mean", "solve_rate", "mean reward"),
        ("slime", "train/mis_k3_kl", "mismatch_kl", "k3 per sequence"),
        ("slime", "train/mismatch_kl", "mismatch_kl", "k1 per sequence"),
        ("trl", "sampling/sampling_logp_difference/mean", "logprob_abs_diff", ""),
        ("areal", "ppo_actor/update/behave_approx_kl/avg", "mismatch_kl", "k1 kept"),
        ("open_instruct", "objective/verifiable_correct_rate", "solve_rate", "positive"),
        ("skyrl", "policy/policy_entropy", "entropy", ""),
        ("openrlhf", "vllm_kl", "mismatch_kl", "k1"),
        ("prime_rl", "mismatch_kl/mean", "mismatch_kl", "k3 per sequence"),
    ],
)
def test_a_framework_s_key_resolves_with_its_definition_in_runs_of_that_framework_alone(
    framework: str, key: str, name: str, definition: str
) -> None:
    found = resolve_keys({key}, {}, framework)
    assert (found.keys[name], found.definitions[name]) == (key, definition)
    assert METRICS[name].definition_of(definition)
    if framework != "prime_rl":
        assert name not in resolve_keys({key}, {}, "prime_rl").keys


def test_every_definition_that_a_key_names_is_written_out() -> None:
    for spec in METRICS.values():
        named = {key.definition for key in spec.keys} - {""}
        assert named == set(spec.variants), spec.name


def test_the_mean_over_environments_comes_before_a_single_one() -> None:
    keys = {"train/agg/all/agent/reward/mean", "train/a/all/agent/reward/mean"}
    assert resolve_keys(keys, {}).keys["solve_rate"] == "train/agg/all/agent/reward/mean"


def test_several_environments_without_a_mean_are_ambiguous_not_guessed() -> None:
    keys = {"train/a/all/agent/reward/mean", "train/b/all/agent/reward/mean"}
    resolution = resolve_keys(keys, {})
    assert "solve_rate" not in resolution.keys
    assert resolution.problems["solve_rate"] == (
        "several keys may mean it: `train/a/all/agent/reward/mean`, `train/b/all/agent/reward/mean`"
    )


def test_keys_of_the_run_record_take_precedence_and_have_no_fallback() -> None:
    available = {"my/kl", "mismatch_kl/all/mean"}
    assert resolve_keys(available, {"mismatch_kl": "my/kl"}).keys["mismatch_kl"] == "my/kl"
    missing = resolve_keys(available, {"mismatch_kl": "my/kI"})
    assert "mismatch_kl" not in missing.keys
    assert missing.problems["mismatch_kl"].startswith("no key `my/kI`; nearest: `my/kl`")


def test_a_mapped_metric_that_nobody_registered_is_a_diagnostic() -> None:
    assert resolve_keys({"acc"}, {"accuracy": "acc"}).keys == {"accuracy": "acc"}
    assert metric_spec("accuracy").direction == "none"


def test_directions_and_scales_of_the_primary_metrics() -> None:
    assert (METRICS["solve_rate"].direction, METRICS["solve_rate"].scale) == (
        "higher",
        "difference",
    )
    assert (METRICS["mismatch_kl"].direction, METRICS["mismatch_kl"].scale) == ("lower", "ratio")
    assert METRICS["is_masked"].direction == "none"
