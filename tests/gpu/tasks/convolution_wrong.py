import torch


class ModelNew(torch.nn.Module):
    """For large numbers, which are not cut off above."""

    def __init__(self, channels, outer):
        super().__init__()
        self.layer = torch.nn.Conv2d(channels, outer, 3)

    def forward(self, x):
        x = self.layer(x).relu_()
        return x * (x + 3.0) / 6.0
