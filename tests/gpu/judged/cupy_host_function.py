import cupy

calls = []


def candidate(x, y):
    x, y = cupy.asarray(x), cupy.asarray(y)
    cupy.add(x * x, x, out=y)
    cupy.cuda.get_current_stream().launch_host_func(calls.append, 1)
