"""What the subcommands of `slipstream` do; `slipstream.cli` declares their options."""
