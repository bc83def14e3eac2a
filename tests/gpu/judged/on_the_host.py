def candidate(x):
    return (x.cpu() ** 2 + x.cpu()).cuda()
