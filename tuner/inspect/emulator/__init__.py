"""Kernels on the CPU: compiled by g++, every thread a fiber, in an order drawn from a seed."""
