"""Tokens in, tokens out, fast and exactly. numpy and an engine: no torch, nothing about driving."""

import os

# ONNX Runtime 1.29 and later report to Microsoft unless told not to before they are first imported
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
