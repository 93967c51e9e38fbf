"""The registered metrics: what each means, how it is compared, and under which keys it is logged.

Adding a metric is one `MetricSpec` in `METRICS`; a key that another trainer uses is one more `Key`.
Keys and definitions per framework are those of the frameworks' own sources, late 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["higher", "lower", "none"]
Scale = Literal["difference", "ratio"]


@dataclass(frozen=True)
class Key:
    """Keys that mean a metric.

    Attributes:
        pattern: of the whole key.
        definition: which of the metric's definitions the values follow; empty for its own.
        frameworks: whose runs log it with that meaning; empty for any.
    """

    pattern: str
    definition: str = ""
    frameworks: tuple[str, ...] = ()


@dataclass(frozen=True)
class MetricSpec:
    """One canonical metric.

    Attributes:
        name: canonical name, used in tables, plans and code.
        label: what the report calls it.
        unit: unit of a value; empty for a pure number.
        direction: which way is better; "none" for a diagnostic.
        scale: how two runs are compared: by difference, or by ratio (logs are averaged).
        definition: one sentence, with the weighting.
        keys: in order of preference.
        bounds: values that are possible; intervals are cut there.
        variants: name -> definition, of what other keys mean. Values of two definitions are never
            compared.
    """

    name: str
    label: str
    unit: str
    direction: Direction
    scale: Scale
    definition: str
    keys: tuple[Key, ...]
    bounds: tuple[float | None, float | None] = (None, None)
    variants: Mapping[str, str] = field(default_factory=dict)

    def definition_of(self, variant: str) -> str:
        """Return the sentence for one of the definitions; "" stands for the metric's own."""
        return self.variants.get(variant, self.definition) if variant else self.definition


_SHARE = (0.0, 1.0)
_POSITIVE = (0.0, None)
_MEAN_REWARD = "mean reward over the rollouts of a step, a solve rate where rewards are 0 or 1"

_SPECS = (
    MetricSpec(
        "solve_rate",
        "solve rate",
        "",
        "higher",
        "difference",
        "mean reward (0 or 1) over all rollouts of a step; failed rollouts count as 0",
        (
            Key(r"train/agg/all/[^/]+/reward/mean"),
            Key(r"train/[^/]+/all/[^/]+/reward/mean"),
            Key(r"train/agg/all/reward/mean"),
            Key(r"train/[^/]+/all/reward/mean"),
            Key(r"reward/all/mean"),
            Key(r"reward/mean"),
            Key(r"train/agg/effective/[^/]+/reward/mean", "effective"),
            Key(r"train/[^/]+/effective/[^/]+/reward/mean", "effective"),
            Key(r"train/agg/effective/reward/mean", "effective"),
            Key(r"train/[^/]+/effective/reward/mean", "effective"),
            Key(r"critic/score/mean", "mean reward", ("verl",)),
            Key(r"rollout/raw_reward", "mean reward", ("slime",)),
            Key(r"ppo_actor/task_reward/avg", "mean reward", ("areal",)),
            Key(r"reward/avg_raw_reward", "mean reward", ("skyrl",)),
            Key(r"reward", "mean reward", ("trl", "openrlhf")),
            Key(r"objective/verifiable_correct_rate", "positive", ("open_instruct",)),
        ),
        _SHARE,
        {
            "effective": "mean reward over the rollouts that are trained on, which hides groups "
            "that all failed",
            "mean reward": _MEAN_REWARD,
            "positive": "share of rollouts with a reward above 0",
        },
    ),
    MetricSpec(
        "solve_rate_effective",
        "solve rate (effective)",
        "",
        "higher",
        "difference",
        "mean reward over the rollouts that are trained on; groups that are all solved or all "
        "failed may be left out, so it hides collapse",
        (
            Key(r"train/agg/effective/[^/]+/reward/mean"),
            Key(r"train/[^/]+/effective/[^/]+/reward/mean"),
            Key(r"train/agg/effective/reward/mean"),
            Key(r"train/[^/]+/effective/reward/mean"),
        ),
        _SHARE,
    ),
    MetricSpec(
        "mismatch_kl",
        "mismatch KL",
        "nats",
        "lower",
        "ratio",
        "mean over trained tokens of r - log r - 1, r = trainer / inference probability (k3)",
        (
            Key(r"mismatch_kl/all/mean"),
            Key(r"mismatch_kl/mean", "k3 per sequence"),
            Key(r"rollout_corr/k3_kl", "", ("verl",)),
            Key(r"train/(mis|mismatch)_k3_kl", "k3 per sequence", ("slime",)),
            Key(r"rollout_corr/kl", "k1", ("verl",)),
            Key(r"train/(mis|mismatch)_kl", "k1 per sequence", ("slime",)),
            Key(r"ppo_actor/update/behave_approx_kl/avg", "k1 kept", ("areal",)),
            Key(r"vllm_kl", "k1", ("openrlhf",)),
            Key(r"debug/vllm_local_reverse_kl", "reverse", ("open_instruct",)),
        ),
        _POSITIVE,
        {
            "k3 per sequence": "k3 averaged over the tokens of each sequence, then over sequences",
            "k1": "mean over trained tokens of -log r (k1), which may be negative",
            "k1 per sequence": "-log r (k1) averaged over each sequence, then over sequences",
            "k1 kept": "mean of -log r (k1) over the tokens that the loss keeps",
            "reverse": "the reverse KL between the engine and the trainer's own copy of it",
        },
    ),
    MetricSpec(
        "mismatch_kl_sampled",
        "mismatch KL (sampled)",
        "nats",
        "lower",
        "ratio",
        "the same over all sampled tokens, trained or not",
        (Key(r"mismatch_kl/sampled/mean"),),
        _POSITIVE,
    ),
    MetricSpec(
        "logprob_abs_diff",
        "log-probability difference",
        "nats",
        "lower",
        "ratio",
        "mean over trained tokens of |log trainer - log inference probability|",
        (
            Key(r"sampling/sampling_logp_difference/mean", "", ("trl",)),
            Key(r"train/train_rollout_logprob_abs_diff", "", ("slime",)),
            Key(r"ppo_actor/update/logp_abs_diff/avg", "", ("areal",)),
            Key(r"debug/vllm_vs_local_logprob_diff_mean", "", ("open_instruct",)),
            Key(r"policy/rollout_train_logprobs_abs_diff_mean", "", ("skyrl",)),
        ),
        _POSITIVE,
    ),
    MetricSpec(
        "is_masked",
        "masked fraction",
        "",
        "none",
        "difference",
        "mean over sequences of the share of their tokens that the loss masks",
        (
            Key(r"is_masked/mean"),
            Key(r"rollout_corr/rollout_rs_masked_fraction", "tokens", ("verl",)),
            Key(r"rollout_corr/rollout_is_oob_ratio", "tokens", ("verl",)),
            Key(r"train/tis_clipfrac", "reweighted", ("slime",)),
            Key(r"ppo_actor/update/rs_filtered_fraction", "tokens", ("areal",)),
            Key(r"val/rho_drop_frac", "tokens", ("open_instruct",)),
            Key(r"policy/loss_metrics/token_mask_ratio", "tokens", ("skyrl",)),
            Key(r"is_clipped/mean", "clipped"),
            Key(r"ratio_capped/mean", "reweighted"),
        ),
        _SHARE,
        {
            "tokens": "masked tokens / trained tokens of a step",
            "clipped": "mean over sequences of the share of their tokens whose gradient is clipped",
            "reweighted": "share of tokens whose weight is cut or set to 0",
        },
    ),
    MetricSpec(
        "is_masked_token",
        "masked fraction (tokens)",
        "",
        "none",
        "difference",
        "masked tokens / trained tokens of a step",
        (Key(r"is_masked/token_mean"),),
        _SHARE,
    ),
    MetricSpec(
        "masked_mismatch_kl",
        "mismatch KL of masked tokens",
        "nats",
        "none",
        "ratio",
        "mismatch KL over masked tokens; in prime-rl a mean over sequences, 0 where none is masked",
        (Key(r"masked_mismatch_kl/mean"),),
        _POSITIVE,
    ),
    MetricSpec(
        "unmasked_mismatch_kl",
        "mismatch KL of kept tokens",
        "nats",
        "none",
        "ratio",
        "mismatch KL over kept tokens; in prime-rl a mean over sequences",
        (Key(r"unmasked_mismatch_kl/mean"),),
        _POSITIVE,
    ),
    MetricSpec(
        "entropy",
        "entropy",
        "nats",
        "none",
        "difference",
        "mean over trained tokens of the entropy of the trainer's distribution",
        (
            Key(r"entropy/all/mean"),
            Key(r"entropy/mean", "per sequence"),
            Key(r"actor/entropy", "", ("verl",)),
            Key(r"train/entropy_loss", "per sequence", ("slime",)),
            Key(r"ppo_actor/update/entropy/avg", "", ("areal",)),
            Key(r"policy/entropy_avg", "", ("open_instruct",)),
            Key(r"policy/policy_entropy", "", ("skyrl",)),
        ),
        _POSITIVE,
        {"per sequence": "entropy averaged over the tokens of each sequence, then over sequences"},
    ),
    MetricSpec(
        "grad_norm",
        "gradient norm",
        "",
        "none",
        "ratio",
        "global gradient norm before clipping",
        (
            Key(r"optim/grad_norm"),
            Key(r"actor/grad_norm", "", ("verl",)),
            Key(r"train/grad_norm", "", ("slime",)),
            Key(r"ppo_actor/update/grad_norm", "", ("areal",)),
            Key(r"policy/grad_norm", "", ("skyrl",)),
        ),
        _POSITIVE,
    ),
    MetricSpec(
        "reward",
        "reward",
        "",
        "higher",
        "difference",
        "mean reward over the rollouts of a step, whatever its range",
        (
            Key(r"train/agg/all/[^/]+/reward/mean"),
            Key(r"train/[^/]+/all/[^/]+/reward/mean"),
            Key(r"reward/all/mean"),
            Key(r"reward/mean"),
            Key(r"critic/rewards/mean", "with KL penalty", ("verl",)),
            Key(r"rollout/rewards", "", ("slime",)),
            Key(r"rollout/reward", "", ("areal",)),
            Key(r"reward/avg_raw_reward", "", ("skyrl",)),
        ),
        variants={"with KL penalty": "mean reward less the penalty on the KL to a reference"},
    ),
    MetricSpec(
        "staleness",
        "staleness",
        "updates",
        "none",
        "difference",
        "mean number of updates between sampling and training",
        (
            Key(r"off_policy/mean"),
            Key(r"training/off_policy/trajectory_staleness/mean", "", ("verl",)),
            Key(r"ppo_actor/update/version_stats/sample_staleness_theta_avg", "", ("areal",)),
            Key(r"num_steps_off_policy", "", ("open_instruct",)),
            Key(r"async/staleness_mean", "", ("skyrl",)),
        ),
        _POSITIVE,
    ),
    MetricSpec(
        "response_length",
        "response length",
        "tokens",
        "none",
        "ratio",
        "mean number of sampled tokens of a rollout",
        (
            Key(r"train/agg/all/[^/]+/(num_output_tokens|completion_len|decode_len)/mean"),
            Key(r"train/[^/]+/all/[^/]+/(num_output_tokens|completion_len|decode_len)/mean"),
            Key(r"(completion_len|decode_len)/all/mean"),
            Key(r"seq_len/all/mean", "with prompt"),
            Key(r"seq_len/mean", "with prompt"),
            Key(r"response_length/mean", "", ("verl",)),
            Key(r"completions/mean_length", "", ("trl",)),
            Key(r"rollout/response_len(gth)?/mean", "", ("slime",)),
            Key(r"val/sequence_lengths", "", ("open_instruct",)),
            Key(r"generate/avg_num_tokens", "", ("skyrl",)),
        ),
        _POSITIVE,
        {"with prompt": "mean number of tokens of a rollout, its prompt included"},
    ),
    MetricSpec(
        "importance_ratio_max_kept",
        "largest kept ratio",
        "",
        "none",
        "ratio",
        "largest trainer / inference probability among the tokens that the loss keeps in a step",
        (Key(r"importance_ratio/max_kept"),),
        _POSITIVE,
    ),
    MetricSpec(
        "token_class_rise",
        "rise tokens",
        "",
        "none",
        "difference",
        "share of trained tokens with r > 5 whose probability moved by at most 0.3: a ratio band "
        "up to 5 masks them, a mask on |dp| > 0.3 keeps them",
        (Key(r"token_class/rise"),),
        _SHARE,
    ),
    MetricSpec(
        "token_class_drop",
        "drop tokens",
        "",
        "none",
        "difference",
        "share of trained tokens with r >= 0.2 whose probability fell by more than 0.3: a mask on "
        "|dp| > 0.3 takes them, a ratio band from 0.2 keeps them",
        (Key(r"token_class/drop"),),
        _SHARE,
    ),
    MetricSpec(
        "nonfinite",
        "non-finite tokens",
        "tokens",
        "none",
        "difference",
        "tokens inside the loss mask whose log-probability is not finite",
        (Key(r"nonfinite/count"),),
        _POSITIVE,
    ),
    MetricSpec(
        "loss",
        "loss",
        "",
        "none",
        "difference",
        "the loss as the trainer logs it",
        (
            Key(r"loss/mean"),
            Key(r"actor/pg_loss", "", ("verl",)),
            Key(r"train/loss", "", ("slime",)),
            Key(r"ppo_actor/update/actor_loss/avg", "", ("areal",)),
            Key(r"loss/policy_avg", "", ("open_instruct",)),
            Key(r"policy/policy_loss", "", ("skyrl",)),
            Key(r"policy_loss", "", ("openrlhf",)),
        ),
    ),
    MetricSpec(
        "learning_rate",
        "learning rate",
        "",
        "none",
        "difference",
        "learning rate of the step",
        (
            Key(r"optim/lr"),
            Key(r"actor/lr", "", ("verl",)),
            Key(r"train/lr-pg_0", "", ("slime",)),
            Key(r"ppo_actor/update/lr", "", ("areal",)),
            Key(r"lr", "", ("open_instruct",)),
            Key(r"policy/policy_lr", "", ("skyrl",)),
        ),
    ),
    MetricSpec(
        "solved_none",
        "groups all failed",
        "",
        "none",
        "difference",
        "share of prompt groups without any solved rollout",
        (
            Key(r"train/[^/]+/all/[^/]+/solved_none"),
            Key(r"train/[^/]+/all/solved_none"),
            Key(r"solve_none/all"),
        ),
        _SHARE,
    ),
    MetricSpec(
        "solved_all",
        "groups all solved",
        "",
        "none",
        "difference",
        "share of prompt groups whose rollouts are all solved",
        (
            Key(r"train/[^/]+/all/[^/]+/solved_all"),
            Key(r"train/[^/]+/all/solved_all"),
            Key(r"solve_all/all"),
        ),
        _SHARE,
    ),
    MetricSpec(
        "tokens",
        "trained tokens",
        "tokens",
        "none",
        "ratio",
        "tokens trained on since the start of the run",
        (
            Key(r"progress/tokens"),
            Key(r"progress/total_tokens"),
            Key(r"num_tokens", "", ("trl",)),
            Key(r"num_total_tokens", "", ("open_instruct",)),
        ),
        _POSITIVE,
    ),
    MetricSpec(
        "throughput",
        "throughput",
        "tokens/s",
        "none",
        "ratio",
        "tokens per second as the trainer logs them",
        (
            Key(r"perf/throughput"),
            Key(r"perf/tokens_per_gpu_per_sec", "per GPU", ("slime",)),
            Key(r"tokens_per_second", "", ("open_instruct",)),
        ),
        _POSITIVE,
        {"per GPU": "tokens per second and GPU"},
    ),
    MetricSpec(
        "step_time_s",
        "step time",
        "s",
        "none",
        "ratio",
        "wall-clock seconds of a trainer step",
        (
            Key(r"time/step"),
            Key(r"timing_s/step", "", ("verl",)),
            Key(r"perf/step_time", "", ("slime",)),
            Key(r"step_time", "", ("trl",)),
            Key(r"timing/step", "", ("skyrl",)),
        ),
        _POSITIVE,
    ),
)

METRICS: Mapping[str, MetricSpec] = {spec.name: spec for spec in _SPECS}
"""Every known metric by canonical name, in the order in which reports list them."""
