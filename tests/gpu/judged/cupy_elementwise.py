import cupy

kernel = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * x + x", "polynomial")


def candidate(x, y):
    kernel(cupy.asarray(x), cupy.asarray(y))
