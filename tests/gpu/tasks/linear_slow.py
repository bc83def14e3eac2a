import torch


class ModelNew(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.layer = torch.nn.Linear(inner, outer)

    def forward(self, x):
        return torch.cat([torch.relu(self.layer(part) * 0.5 + 0.25) for part in x.chunk(64)])
