"""The proof that drafting changes nothing, run on the user's own engine: tokens only."""
