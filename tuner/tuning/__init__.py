"""A run: search, record, race, confirm."""
