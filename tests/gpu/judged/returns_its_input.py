def candidate(x):
    return x.mul_(x + 1.0)
