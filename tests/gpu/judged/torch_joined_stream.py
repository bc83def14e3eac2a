import torch

stream = torch.cuda.Stream()


def candidate(x, y):
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y.copy_(x * x + x)
    torch.cuda.current_stream().wait_stream(stream)
