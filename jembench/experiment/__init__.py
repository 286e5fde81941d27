"""What is to be done: suites, sweeps, recipes and plans. Imports no torch."""
