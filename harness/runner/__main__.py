"""`python -P -m harness.runner`."""

from __future__ import annotations

import sys

from harness.runner.main import main

sys.exit(main())
