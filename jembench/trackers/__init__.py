"""Trackers that write the events of a run to TensorBoard, MLflow and Weights & Biases."""
