"""From option names and overrides to one checked, resolved, plain configuration."""
