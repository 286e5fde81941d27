"""Trackers of events: TensorBoard, MLflow and Weights & Biases."""
