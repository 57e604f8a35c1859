"""The ONNX graphs of a bundle, written node by node; names and shapes are the graph contract."""
