"""Many drives: the same replay on workers of this machine or of a Ray cluster, and a summary."""
