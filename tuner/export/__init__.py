"""Results in the form that other programs use."""
