"""Engines run one graph each; ONNX Runtime on CPU is the one that works everywhere."""
