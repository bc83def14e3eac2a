"""Limits of a GPU: roofline and occupancy; and how a problem is timed on it: conditions and batches."""
