"""What state each run is in, told from the records and SLURM; and what follows from it."""
