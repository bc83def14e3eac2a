"""What a user sees: progress, tables, summaries."""
