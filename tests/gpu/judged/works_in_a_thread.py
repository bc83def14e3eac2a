import threading
import time


def work():
    while True:
        time.sleep(0.001)


threading.Thread(target=work, daemon=True).start()


def candidate(x, y):
    y.copy_(x * x + x)
