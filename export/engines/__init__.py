"""ONNX graphs to TensorRT engines; the same code drives `tensorrt` and `tensorrt_rtx`."""
