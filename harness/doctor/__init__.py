"""The checks of `harness doctor`: each says what it found and, where that is bad, what to do."""
