import inspect

frames = inspect.stack()


def candidate(x, y):
    y.copy_(x * x + x)
