"""How large a count or number may be that a user gives."""

MOST = 2**31 - 1
"""More than any use needs, and SQLite's integers hold it."""
