"""Studies of chosen configurations: bench, ladder, ablation, portfolio."""
