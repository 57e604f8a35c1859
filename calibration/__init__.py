"""Post-training quantization, calibrated on recorded drives and gated by driving metrics."""
