import torch


class ModelNew(torch.nn.Module):
    def __init__(self, channels, outer):
        super().__init__()
        self.layer = torch.nn.Conv2d(channels, outer, 3)

    def forward(self, x):
        return torch.cat([torch.nn.functional.hardswish(self.layer(part).relu()) for part in x.split(1)])
