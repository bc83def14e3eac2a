import cupy


def candidate(x, y):
    ours, to = cupy.asarray(x), cupy.asarray(y)
    cupy.multiply(ours, ours, out=to)
    cupy.add(to, ours, out=to)
