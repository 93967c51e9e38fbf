"""RL losses: their knobs (`config`), mask rules (`masks`), arithmetic (`policy`) and metrics."""
