"""Where metrics rows go: always a file, and the services that a run asked for."""
