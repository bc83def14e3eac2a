"""CUDA source text: what it declares, what its code does, and the kernel's file that follows from it."""
