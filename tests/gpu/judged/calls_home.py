import socket

socket.create_connection(("127.0.0.1", 9), 1)


def candidate(x, y):
    y.copy_(x * x + x)
