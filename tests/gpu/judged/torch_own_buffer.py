import torch

kept = {}


def candidate(x, y):
    if x.shape not in kept:
        kept[x.shape] = torch.empty_like(x)
    torch.mul(x, x, out=kept[x.shape])
    torch.add(kept[x.shape], x, out=y)
