"""The public API, which :mod:`jembench` names: its functions and the objects that they return."""
