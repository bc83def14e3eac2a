"""`tune explain`: why a configuration is as fast as it is, from its machine code."""
