"""SLURM's own commands: what is asked of them and what their answers mean. No submitit here."""
