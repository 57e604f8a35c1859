"""`slipstream train`: targets and drafters from a config file. Needs the `train` extra (torch)."""
