"""Step time of the built-in trainer against a bare PyTorch loop of the same model and batch.

    python tests/benchmarks/step_time.py

Prints both and their ratio (goal: at most 1.15). The bare loop is a plain script: modules,
torch.optim, a key-value cache, an fp8/bf16 engine with stale weights, sampling included; it logs
nothing but the reward and the loss. Both run the stress recipe in turns within one process, on one
thread, so that what else the machine does meets both.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.records.files import write_json
from harness.records.layout import SweepPaths
from harness.trainers.builtin.config import (
    BuiltinConfig,
    EngineConfig,
    MoeTransformerConfig,
    OptimConfig,
    RolloutsConfig,
    WarmStartConfig,
)
from harness.trainers.builtin.tasks.reverse import ReverseConfig
from harness.trainers.builtin.train import RunRequest, train

GOAL = 1.15
LENGTH, SYMBOLS, DIM, LAYERS, HEADS, EXPERTS, ACTIVE, HIDDEN = 8, 16, 32, 2, 4, 4, 2, 32
PROMPTS, PER_PROMPT, STALENESS, LR, WARMUP_STEPS = 8, 8, 8, 0.7, 20
STEPS_PER_TURN, TURNS = 20, 15

Cache = list[tuple[Tensor, Tensor]]
Rounding = Callable[[Tensor], Tensor]


class Layer(nn.Module):
    """Attention and a mixture of experts."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.out = nn.Linear(DIM, DIM, bias=False)
        self.norm2 = nn.RMSNorm(DIM)
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.up = nn.Linear(DIM, EXPERTS * HIDDEN, bias=False)
        self.down = nn.Linear(EXPERTS * HIDDEN, DIM, bias=False)

    def forward(
        self, x: Tensor, past: tuple[Tensor, Tensor] | None, low: Rounding
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        n, t, _ = x.shape
        qkv = low(self.qkv(low(self.norm1(x))))
        q, k, v = qkv.view(n, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        scores = q @ k.transpose(-1, -2) / (DIM // HEADS) ** 0.5
        if t > 1:
            scores = scores + torch.full((t, t), -torch.inf).triu(1)
        mixed = (low(scores.softmax(-1)) @ v).transpose(1, 2).reshape(n, t, DIM)
        x = low(x + self.out(low(mixed)))
        h = low(self.norm2(x))
        top, chosen = self.router(h).topk(ACTIVE, -1)
        gates = torch.zeros(n, t, EXPERTS).scatter(-1, chosen, top.softmax(-1))
        hidden = functional.relu(self.up(h)).view(n, t, EXPERTS, HIDDEN) * gates[..., None]
        return low(x + self.down(low(hidden.flatten(2)))), (k, v)


class Policy(nn.Module):
    """The trainer's model, and the engine's when given rounded weights and a rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS + 1, DIM)
        self.position = nn.Parameter(torch.randn(2 * LENGTH, DIM) / DIM**0.5)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(DIM)
        self.head = nn.Linear(DIM, SYMBOLS + 1, bias=False)

    def forward(
        self, tokens: Tensor, cache: Cache | None = None, low: Rounding = lambda x: x
    ) -> tuple[Tensor, Cache]:
        start = 0 if cache is None else cache[0][0].shape[2]
        x = low(self.embedding(tokens) + self.position[start : start + tokens.shape[1]])
        new: Cache = []
        for i, layer in enumerate(self.layers):
            x, pair = layer(x, None if cache is None else cache[i], low)
            new.append(pair)
        return self.head(low(self.norm(x))), new


def to_bf16(x: Tensor) -> Tensor:
    return x.bfloat16().float()


def to_fp8(weight: Tensor) -> Tensor:
    scale = weight.abs().amax() / 448
    return (weight / scale).to(torch.float8_e4m3fn).float() * scale


def repeat(x: Tensor) -> Tensor:
    return x.repeat_interleave(PER_PROMPT, 0)


class BareLoop:
    """One process, no files, no options."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.policy, self.engine = Policy(), Policy()
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=LR)
        self.queue = deque([[p.detach().clone() for p in self.policy.parameters()]])
        self.num_steps = 0

    @torch.inference_mode()
    def rollouts(self) -> tuple[Tensor, Tensor, Tensor]:
        names = [name for name, _ in self.policy.named_parameters()]
        for name, target, source in zip(
            names, self.engine.parameters(), self.queue[0], strict=True
        ):
            exact = "norm" in name or "router" in name
            target.copy_(source if exact else to_fp8(source))
        prompts = torch.randint(0, SYMBOLS, (PROMPTS, LENGTH))
        tokens = torch.cat([prompts, torch.full((PROMPTS, 1), SYMBOLS)], 1)
        logits, cache = self.engine(tokens, None, to_bf16)
        logits = repeat(logits[:, -1])
        cache = [(repeat(keys), repeat(values)) for keys, values in cache]
        sampled, logprobs = [], []
        for i in range(LENGTH):
            lp = logits.log_softmax(-1)
            token = (lp.exp() / torch.empty_like(lp).exponential_()).argmax(-1, keepdim=True)
            sampled.append(token)
            logprobs.append(lp.gather(-1, token))
            if i < LENGTH - 1:
                logits, cache = self.engine(token, cache, to_bf16)
                logits = logits[:, -1]
        responses = torch.cat(sampled, 1)
        sequences = torch.cat([repeat(tokens), responses], 1)
        return sequences, responses, torch.cat(logprobs, 1)

    def step(self) -> tuple[float, float]:
        sequences, responses, inference_logprobs = (x.clone() for x in self.rollouts())
        answers = sequences[:, :LENGTH].flip(1)
        rewards = (responses == answers).all(1).float().view(PROMPTS, PER_PROMPT)
        advantages = (rewards - rewards.mean(1, keepdim=True)).view(-1, 1)
        logits, _ = self.policy(sequences[:, :-1])
        logprobs = logits[:, LENGTH:].log_softmax(-1).gather(-1, responses[..., None])[..., 0]
        loss = -(advantages * (logprobs - inference_logprobs).exp()).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.num_steps += 1
        self.optimizer.param_groups[0]["lr"] = LR * min(1.0, self.num_steps / WARMUP_STEPS)
        self.optimizer.step()
        self.queue.append([p.detach().clone() for p in self.policy.parameters()])
        if len(self.queue) > STALENESS + 1:
            self.queue.popleft()
        return float(rewards.mean()), float(loss.detach())


def make_config() -> dict[str, Any]:
    """The same recipe for the built-in trainer."""
    task = ReverseConfig(length=LENGTH, num_symbols=SYMBOLS)
    model = MoeTransformerConfig(
        dim=DIM,
        num_layers=LAYERS,
        num_heads=HEADS,
        num_experts=EXPERTS,
        num_active_experts=ACTIVE,
        expert_dim=HIDDEN,
    )
    settings = BuiltinConfig(
        optim=OptimConfig(type="sgd", lr=LR, warmup_steps=WARMUP_STEPS, max_grad_norm=None),
        rollouts=RolloutsConfig(prompts=PROMPTS, per_prompt=PER_PROMPT),
        engine=EngineConfig(staleness=STALENESS),
        warm_start=WarmStartConfig(solve_rate=0.0),
        device="cpu",
    )
    return {
        "loss": {"type": "ipo"},
        "task": asdict(task),
        "model": asdict(model),
        "trainer": asdict(settings),
        "seed": 0,
    }


class Turns:
    """Lets the two loops take turns: the trainer asks after every step whether to stop."""

    def __init__(self, bare: BareLoop) -> None:
        self.bare = bare
        self.num_steps = 0
        self.bare_times_s: list[float] = []
        self.builtin_times_s: list[float] = []
        self.start = time.perf_counter()

    def after_step(self) -> bool:
        self.num_steps += 1
        if self.num_steps % STEPS_PER_TURN == 0:
            self.builtin_times_s.append(time.perf_counter() - self.start)
            start = time.perf_counter()
            for _ in range(STEPS_PER_TURN):
                self.bare.step()
            self.bare_times_s.append(time.perf_counter() - start)
            self.start = time.perf_counter()
        return False


def main() -> None:
    torch.set_num_threads(1)
    turns = Turns(BareLoop())
    with tempfile.TemporaryDirectory() as folder:
        sweep = SweepPaths(Path(folder) / "sweep")
        paths = sweep.run("ipo", 0)
        write_json(paths.attempt(1).claim, {})
        request = RunRequest(paths, sweep, make_config(), 1, STEPS_PER_TURN * TURNS)
        with contextlib.redirect_stdout(io.StringIO()):
            train(request, should_stop=turns.after_step)
    # The first turn warms both up.
    pairs = list(zip(turns.builtin_times_s, turns.bare_times_s, strict=True))[1:]
    builtin_s, bare_s = (
        statistics.median(times) / STEPS_PER_TURN for times in zip(*pairs, strict=True)
    )
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    print(f"built-in trainer {builtin_s * 1e3:.1f} ms a step, bare loop {bare_s * 1e3:.1f} ms")
    print(f"ratio {ratio:.2f} (goal: at most {GOAL})")


if __name__ == "__main__":
    main()
