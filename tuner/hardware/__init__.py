"""What a GPU could do: roofline, occupancy, and the conditions under which a problem is timed."""
