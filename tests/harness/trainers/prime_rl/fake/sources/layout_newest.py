"""TEST DOUBLE of prime-rl: how the newest version that is known lays out a run folder."""

LAYOUT = "newest"
METRICS_PATH = "monitors/file/metrics.jsonl"
OWN_FILES = ("configs", "launcher", "rl.sbatch", "sft.sbatch", "job_*.log")
SCRIPT_PATH = "launcher/rl.sbatch"
HAS_PRODUCER = True
