"""Trackers that write what happens in a run for TensorBoard, MLflow and Weights & Biases."""
