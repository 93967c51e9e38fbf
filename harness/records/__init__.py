"""The contract on disk: every file name, who writes it, and what stands in it.

This package needs nothing but the standard library, so that `analysis` and the node-side runner
can read a sweep without Hydra, submitit or torch.
"""
