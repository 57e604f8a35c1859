"""What a machine can run: facts read from its files and its Python, and what to mend."""
