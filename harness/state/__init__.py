"""What state each run is in, told from the records alone; and what follows from it."""
