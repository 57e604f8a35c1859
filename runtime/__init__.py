"""Tokens in, tokens out, fast and exactly. numpy and an engine: no torch, nothing about driving."""
