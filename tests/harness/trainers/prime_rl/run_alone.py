"""Runs the exported losses where this project is not: torch, the exported file, the stand-in.

`python -I -S run_alone.py FOLDER...` puts the folders on the path, reads cases from stdin as JSON
and prints what each came to. Floats survive JSON exactly. A module called `harness` that is not
this project's must be found there: it shows that the clash is harmless and that nothing of this
project can be imported.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def main() -> None:
    sys.path[:0] = sys.argv[1:]
    assert importlib.import_module("harness").IS_FOREIGN
    ablation_loss = importlib.import_module("ablation_loss")
    results = [run(ablation_loss.compute, case) for case in json.load(sys.stdin)]
    assert not any(name.startswith("harness.") for name in sys.modules)
    json.dump(results, sys.stdout)


def run(compute: Any, case: dict[str, Any]) -> dict[str, Any]:
    """Return loss, gradient and metrics of `case`: plain numbers, a float type and `kwargs`."""
    torch = importlib.import_module("torch")
    stand_in = importlib.import_module("loss_stand_in")
    dtype = getattr(torch, case["dtype"])
    leaves = [torch.tensor(row, dtype=dtype, requires_grad=True) for row in case["lp"]]
    sequences = [
        stand_in.make_inputs(
            leaf,
            torch.tensor(lq, dtype=dtype),
            torch.tensor(advantages, dtype=dtype),
            torch.tensor(loss_mask, dtype=torch.bool),
        )
        for leaf, lq, advantages, loss_mask in zip(
            leaves, case["lq"], case["advantages"], case["loss_mask"], strict=True
        )
    ]
    loss, metrics = stand_in.compute_loss(
        lambda inputs: compute(inputs, **case["kwargs"]), sequences, rl_scale=1.0
    )
    loss.backward()
    return {
        "loss": loss.item(),
        "dtype": str(loss.dtype),
        "gradient": [leaf.grad.tolist() for leaf in leaves],
        "metrics": {key: values.tolist() for key, values in metrics.items()},
    }


if __name__ == "__main__":
    main()
