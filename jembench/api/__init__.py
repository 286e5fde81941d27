"""The public API: functions, and the objects that they return."""
