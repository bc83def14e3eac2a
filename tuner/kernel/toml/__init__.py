"""A kernel's TOML file, one module for each of its tables."""
