import ctypes

import torch

calls = []
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
function = FUNCTION(calls.append)


def candidate(x, y):
    torch.addcmul(x, x, x, out=y)
    stream = torch.cuda.current_stream().cuda_stream
    ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(ctypes.c_void_p(stream), function, None)
