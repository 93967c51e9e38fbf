"""From a sweep file to a plan: which runs, what they compute, and whether they may be compared."""
