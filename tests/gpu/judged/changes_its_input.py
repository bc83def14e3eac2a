def candidate(x, y):
    x.mul_(1.5)
    y.copy_(x * x + x)
