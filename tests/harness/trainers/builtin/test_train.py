from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from analysis.metrics import resolve_keys
from harness.errors import HarnessError
from harness.trainers.builtin.checkpoints import checkpoint_dir, list_checkpoints
from harness.trainers.builtin.train import train
from harness.trainers.builtin.trainer import LOGGED_METRICS

UNSTABLE: dict[str, Any] = {"trainer.optim": {"type": "sgd", "lr": 8.0, "max_grad_norm": None}}
"""Steps so large that rollouts three updates old are far off the policy."""
MORE_PROMPTS: dict[str, Any] = {"trainer.rollouts": {"prompts": 16, "per_prompt": 8}}
TOKENS: dict[str, Any] = {"trainer.tokens": {"every": 1}}


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in row if key not in ("time", "time/step", "attempt")}


def test_rows_hold_prime_rls_keys(make_request: Any, run_to_end: Any) -> None:
    rows = run_to_end(make_request({**MORE_PROMPTS, "loss": {"type": "ipo"}}))
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    expected = {
        *("step", "time", "attempt", "policy_step", "progress/tokens", "time/step"),
        *("mismatch_kl/all/mean", "mismatch_kl/all/std", "mismatch_kl/all/max"),
        *("mismatch_kl/sampled/mean", "entropy/all/mean", "is_masked/mean"),
        *("is_masked/token_mean", "masked_mismatch_kl/mean", "unmasked_mismatch_kl/mean"),
        *("importance_ratio/max_kept", "token_class/rise", "token_class/drop"),
        *("nonfinite/count", "optim/grad_norm", "optim/lr", "loss/mean", "off_policy/mean"),
        "train/reverse/all/agent/reward/mean",
        "train/reverse/effective/agent/reward/mean",
        "train/reverse/all/agent/solved_none",
        "train/reverse/all/agent/solved_all",
        "train/reverse/all/agent/solved_some",
    }
    assert expected <= rows[0].keys()
    assert all(math.isfinite(value) for row in rows for value in row.values())


def test_rows_hold_the_metrics_that_stop_rules_may_be_about(
    make_request: Any, run_to_end: Any
) -> None:
    rows = run_to_end(make_request({**MORE_PROMPTS, "loss": {"type": "ipo"}}))
    # The mean of rewards of 0 and 1 is the solve rate.
    assert resolve_keys(rows[0].keys(), {}, "prime_rl").keys.keys() - {"reward"} == LOGGED_METRICS


def test_rows_count_tokens_attempts_and_staleness(make_request: Any, run_to_end: Any) -> None:
    rows = run_to_end(make_request({"trainer.engine": {"staleness": 2}}, attempt=3))
    assert [row["progress/tokens"] for row in rows] == [64 * step for step in range(1, 7)]
    assert [row["attempt"] for row in rows] == [3] * 6
    assert [row["policy_step"] for row in rows] == [0, 0, 0, 1, 2, 3]
    assert [row["off_policy/mean"] for row in rows] == [0, 1, 2, 2, 2, 2]


def test_an_exact_engine_without_staleness_has_no_mismatch(
    make_request: Any, run_to_end: Any
) -> None:
    engine = {"weights": "none", "activations": "none", "kv_cache": "none", "staleness": 0}
    rows = run_to_end(make_request({"trainer.engine": engine, **UNSTABLE}, max_steps=20))
    assert all(0 <= row["mismatch_kl/all/mean"] < 1e-6 for row in rows)
    assert any(row["optim/grad_norm"] > 0 for row in rows)


def test_entropy_of_an_untrained_uniform_policy(make_request: Any, run_to_end: Any) -> None:
    rows = run_to_end(make_request({"trainer.rollouts.temperature": 100.0}, max_steps=1))
    # At temperature 100 the policy is nearly uniform over 3 symbols and the separator.
    assert rows[0]["entropy/all/mean"] == pytest.approx(math.log(4), abs=1e-3)


def test_learning_rate_warms_up(make_request: Any, run_to_end: Any) -> None:
    optim = {"type": "sgd", "lr": 0.4, "warmup_steps": 4, "max_grad_norm": None}
    rows = run_to_end(make_request({"trainer.optim": optim}))
    assert [row["optim/lr"] for row in rows] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_gradient_norm_is_logged_before_clipping(make_request: Any, run_to_end: Any) -> None:
    def first_norm(max_norm: float | None, arm: str) -> float:
        optim = {"type": "sgd", "lr": 0.4, "max_grad_norm": max_norm}
        request = make_request({"trainer.optim": optim, **MORE_PROMPTS}, arm=arm, max_steps=1)
        return float(run_to_end(request)[0]["optim/grad_norm"])

    assert first_norm(1e-3, "clipped") == first_norm(None, "plain") > 1e-3


def test_same_seed_gives_the_same_numbers(make_request: Any, run_to_end: Any) -> None:
    first = run_to_end(make_request(UNSTABLE, arm="one"))
    torch.rand(17)
    again = run_to_end(make_request(UNSTABLE, arm="two"))
    other = run_to_end(make_request({**UNSTABLE, "seed": 1}, arm="one"))
    assert [without_times(row) for row in first] == [without_times(row) for row in again]
    assert [without_times(row) for row in first] != [without_times(row) for row in other]


@pytest.mark.parametrize("loss", ["ipo", "icepop", "ipo_band"])
def test_arms_are_equal_until_the_first_token_that_a_mask_treats_differently(
    make_request: Any, run_to_end: Any, loss: str
) -> None:
    changes = {**UNSTABLE, **MORE_PROMPTS, "trainer.engine": {"staleness": 3}}
    plain = run_to_end(make_request(changes, arm="plain", max_steps=25))
    masked = run_to_end(
        make_request({**changes, "loss": {"type": loss}}, arm="masked", max_steps=25)
    )
    first = next(i for i, row in enumerate(masked) if row["is_masked/token_mean"] > 0)
    assert 0 < first < 24
    shared = [
        key
        for key in plain[0]
        if key not in ("time", "time/step") and not key.startswith(("ratio_capped", "is_masked"))
    ]
    for ours, theirs in zip(plain[:first], masked[:first], strict=True):
        assert {key: ours[key] for key in shared} == {key: theirs[key] for key in shared}
    # At that step the data are still the same, and the update is not.
    kl = "mismatch_kl/sampled/mean"
    assert plain[first][kl] == masked[first][kl]
    assert plain[first]["optim/grad_norm"] != masked[first]["optim/grad_norm"]
    assert plain[first + 1][kl] != masked[first + 1][kl]


def test_filtering_leaves_the_loss_and_the_all_metrics(make_request: Any, run_to_end: Any) -> None:
    rows = run_to_end(make_request({**MORE_PROMPTS, "trainer.filter_zero_advantages": True}))
    for before, row in zip([None, *rows], rows, strict=False):
        trained = row["progress/tokens"] - (before["progress/tokens"] if before else 0)
        assert trained == row["train/reverse/all/agent/solved_some"] * 16 * 8 * 2
    assert any(row["mismatch_kl/all/mean"] != row["mismatch_kl/sampled/mean"] for row in rows)


def test_a_step_without_a_trained_token_changes_nothing(make_request: Any, run_to_end: Any) -> None:
    # A first token of 12 symbols is right too rarely for any of 4 * 8 rollouts to be.
    task = {"type": "reverse", "length": 6, "num_symbols": 12}
    changes = {"task": task, "trainer.filter_zero_advantages": True}
    rows = run_to_end(make_request(changes, max_steps=2))
    for row in rows:
        assert row["progress/tokens"] == 0
        assert row["optim/grad_norm"] == 0
        assert "mismatch_kl/all/mean" not in row
        assert "entropy/all/mean" not in row
        assert row["mismatch_kl/sampled/mean"] > 0


def test_a_run_whose_weights_overflow_goes_on(make_request: Any, run_to_end: Any) -> None:
    optim = {"type": "sgd", "lr": 1000.0, "weight_decay": 1000.0, "max_grad_norm": None}
    rows = run_to_end(make_request({"trainer.optim": optim}, max_steps=12))
    assert len(rows) == 12
    assert rows[-1]["nonfinite/count"] == 64
    assert "mismatch_kl/all/mean" not in rows[-1]


def test_token_records_hold_what_the_loss_saw(make_request: Any, run_to_end: Any) -> None:
    changes = {
        **UNSTABLE,
        **MORE_PROMPTS,
        **TOKENS,
        "loss": {"type": "ipo", "eps": 0.05},
        "trainer.filter_zero_advantages": True,
    }
    request = make_request(changes, max_steps=8)
    rows = run_to_end(request)
    num_masked = num_trained = 0
    for row in rows:
        table = pq.read_table(request.paths.tokens_file(row["step"])).to_pandas()
        log_p = table["trainer_logprob"].to_numpy(np.float64)
        log_q = table["inference_logprob"].to_numpy(np.float64)
        log_ratio = log_p - log_q
        k3 = np.exp(log_ratio) - log_ratio - 1
        trained = table["loss_mask"].to_numpy()
        assert len(table) == 16 * 8 * 2
        assert k3.mean() == pytest.approx(row["mismatch_kl/sampled/mean"], rel=1e-4, abs=1e-9)
        if not trained.any():
            continue
        assert k3[trained].mean() == pytest.approx(row["mismatch_kl/all/mean"], rel=1e-4, abs=1e-9)
        masked = table["is_masked"].to_numpy()
        clear = np.abs(np.abs(np.exp(log_p) - np.exp(log_q)) - 0.05) > 1e-6
        expected = trained & (np.abs(np.exp(log_p) - np.exp(log_q)) > 0.05)
        assert (masked == expected)[clear].all()
        assert masked[trained].mean() == pytest.approx(row["is_masked/token_mean"])
        loss = -(table["advantage"] * np.exp(log_ratio))[trained & ~masked].sum() / trained.sum()
        assert loss == pytest.approx(row["loss/mean"], rel=1e-4, abs=1e-7)
        num_masked += masked.sum()
        num_trained += trained.sum()
    assert 0 < num_masked < num_trained < 8 * 16 * 8 * 2


def test_token_records_come_every_so_many_steps(make_request: Any, run_to_end: Any) -> None:
    request = make_request({"trainer.tokens": {"every": 3}}, max_steps=7)
    run_to_end(request)
    names = sorted(path.name for path in request.paths.tokens_dir.iterdir())
    assert names == ["step_000003.parquet", "step_000006.parquet"]


def test_variable_length_responses_are_trained_up_to_their_end(
    make_request: Any, run_to_end: Any
) -> None:
    changes = {"task": {"type": "dedup", "length": 3, "num_symbols": 2}, **TOKENS}
    request = make_request(changes, max_steps=3)
    rows = run_to_end(request)
    assert "train/dedup/all/agent/reward/mean" in rows[0]
    table = pq.read_table(request.paths.tokens_file(1)).to_pandas()
    assert len(table) == rows[0]["progress/tokens"] < 32 * 4
    end = 3
    for _, response in table.groupby("sequence"):
        tokens = response.sort_values("position")["token_id"].tolist()
        assert end not in tokens[:-1]
        assert len(tokens) == 4 or tokens[-1] == end


def test_checkpoints_come_every_so_many_steps_and_at_the_end(
    make_request: Any, run_to_end: Any
) -> None:
    request = make_request({"trainer.checkpoints": {"every": 4, "keep_last": 9}}, max_steps=10)
    run_to_end(request)
    assert list_checkpoints(request.paths.checkpoints_dir) == [4, 8, 10]


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "sign_sgd"])
def test_raising_max_steps_continues_as_if_it_had_never_ended(
    make_request: Any, run_to_end: Any, claim: Any, optimizer: str
) -> None:
    optim = {"type": optimizer, "lr": 0.01, "warmup_steps": 5}
    changes = {"trainer.optim": optim, "trainer.engine": {"staleness": 3, "kv_cache": "fp8"}}
    unbroken = run_to_end(make_request(changes, arm="unbroken", max_steps=9))
    request = make_request(changes, arm="raised", max_steps=4)
    run_to_end(request)
    claim(request.paths, 2)
    raised = run_to_end(dataclasses.replace(request, attempt=2, max_steps=9))
    assert [row["attempt"] for row in raised] == [1] * 4 + [2] * 5
    assert [without_times(row) for row in raised] == [without_times(row) for row in unbroken]


def test_a_finished_run_has_nothing_left_to_do(
    make_request: Any, run_to_end: Any, claim: Any
) -> None:
    request = make_request(max_steps=3)
    rows = run_to_end(request)
    claim(request.paths, 2)
    assert run_to_end(dataclasses.replace(request, attempt=2)) == rows


def test_a_run_continues_from_an_older_checkpoint_when_the_newest_is_damaged(
    make_request: Any, run_to_end: Any, claim: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"trainer.checkpoints": {"every": 2, "keep_last": 2}, **TOKENS}
    unbroken = run_to_end(make_request(changes, arm="unbroken", max_steps=6))
    request = make_request(changes, arm="damaged", max_steps=4)
    run_to_end(request)
    (checkpoint_dir(request.paths.checkpoints_dir, 4) / "state.pt").write_bytes(b"torn")
    claim(request.paths, 2)
    rows = run_to_end(dataclasses.replace(request, attempt=2, max_steps=6))
    assert "step_000004" in capsys.readouterr().err
    assert [(row["attempt"], row["step"]) for row in rows] == [
        *((1, step) for step in range(1, 5)),
        *((2, step) for step in range(3, 7)),
    ]
    assert [without_times(row) for row in rows[4:]] == [without_times(row) for row in unbroken[2:]]
    repeated = pq.read_table(request.paths.tokens_file(3))
    assert repeated["attempt"].unique().to_pylist() == [2]


def test_stopping_ends_after_the_step_in_progress_with_a_checkpoint(
    make_request: Any, read_rows: Any
) -> None:
    request = make_request(max_steps=50)
    answers = iter([False, False, True])
    # The first two are asked in steps 1 and 2; without a warm start none is asked before.
    assert not train(request, should_stop=lambda: next(answers))
    assert [row["step"] for row in read_rows(request.paths)] == [1, 2, 3]
    assert list_checkpoints(request.paths.checkpoints_dir) == [3]


def test_a_superseded_attempt_stops_without_a_checkpoint(make_request: Any, claim: Any) -> None:
    request = make_request({"trainer.checkpoints": {"every": 2}}, max_steps=50)
    claim(request.paths, 2)
    with pytest.raises(HarnessError, match="attempt 1 was superseded"):
        train(request, should_stop=lambda: False)
    assert list_checkpoints(request.paths.checkpoints_dir) == []


def test_services_that_were_asked_for_get_the_rows(make_request: Any, run_to_end: Any) -> None:
    request = make_request({"trainer.trackers": {"tensorboard": True}}, max_steps=2)
    assert len(run_to_end(request)) == 2
    [events] = (request.paths.trainer_dir / "tensorboard").iterdir()
    assert b"mismatch_kl/all/mean" in events.read_bytes()


def test_a_gpu_that_is_not_there_is_an_error(make_request: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(HarnessError, match=r"`trainer\.device`: 'cuda'"):
        train(make_request({"trainer.device": "cuda"}), should_stop=lambda: False)
