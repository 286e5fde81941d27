"""What a model promises, one function for each promise: its name is the check's, its docstring the promise."""
