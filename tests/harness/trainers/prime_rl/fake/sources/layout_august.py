"""TEST DOUBLE of prime-rl: how the version of August 2026 lays out a run folder."""

LAYOUT = "august"
METRICS_PATH = "metrics.jsonl"
OWN_FILES = ("configs", "rl.sbatch", "sft.sbatch", "job_*.log")
SCRIPT_PATH = "rl.sbatch"
HAS_PRODUCER = False
