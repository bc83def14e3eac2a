"""NVIDIA's tools around a kernel: Nsight Compute, which explains a time, and Compute Sanitizer, which finds faults."""
