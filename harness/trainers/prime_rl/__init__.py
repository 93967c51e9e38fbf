"""The trainer `prime_rl`: prime-rl, called as a program from its own checkout."""
