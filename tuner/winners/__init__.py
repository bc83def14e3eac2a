"""Stored winners, and the kernels that they were tuned with."""
