"""The valid configurations of a problem on a GPU."""
