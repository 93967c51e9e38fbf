"""What the commands say: talk on stderr, data on stdout."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
