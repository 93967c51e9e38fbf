"""A small, real, asynchronous RL trainer: a tiny policy, verifiable tasks, a separate engine.

One process trains one run. What makes it asynchronous RL is kept: rollouts are sampled by an
inference engine whose weights are older than the trainer's and in lower precision.
"""
