import torch


class ModelNew(torch.nn.Module):
    """For negative numbers."""

    def __init__(self, inner, outer):
        super().__init__()
        self.layer = torch.nn.Linear(inner, outer)

    def forward(self, x):
        moved = self.layer.bias * 0.5 + 0.25
        return torch.addmm(moved, x.relu(), self.layer.weight.T, alpha=0.5).relu_()
