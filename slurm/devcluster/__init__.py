"""A real SLURM cluster on one machine, for tests and trials. See README.md beside this file."""
