"""Other tools' files: what they recorded, and what their search spaces are."""
