import cupy


@cupy.fuse()
def polynomial(x):
    return x * x + x


def candidate(x, y):
    cupy.asarray(y)[...] = polynomial(cupy.asarray(x))
