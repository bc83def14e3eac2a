def candidate(x):
    return x * x + x
