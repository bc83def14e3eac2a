"""Files of results and search spaces, ours and those of other tools: one module a format."""
