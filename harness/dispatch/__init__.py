"""Starts planned runs somewhere and follows them: one interface, one module per place."""
