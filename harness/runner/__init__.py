"""The node side: claims a run, starts its trainer, records what happens until it ends.

Started as `python -P -m harness.runner` with the run folder and the submission in the environment
(`HARNESS_RUN_DIR`, `HARNESS_SUBMISSION`), by any dispatcher alike.
"""
