"""Auto-tuning of generated CUDA kernels: every result is verified, repeatable and kept."""

__version__ = "0.1.0"
