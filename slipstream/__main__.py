"""`python -m slipstream` is the command line."""

from __future__ import annotations

from slipstream.cli import main

main()
