def candidate(x, y):
    return None
