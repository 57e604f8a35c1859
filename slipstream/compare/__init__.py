"""`slipstream compare`: drafters under one budget, measured in the loop that drives with them."""
