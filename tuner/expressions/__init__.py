"""The expressions of kernel files: arithmetic on sizes, element by element, on arrays; as NumPy and as CUDA."""
