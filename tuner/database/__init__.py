"""The SQLite file: the only record of what was measured. Only this package speaks SQL."""
