"""``tune``, and ``python -m tuner``."""

import signal

# Ctrl-C during an import would be a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from tuner.cli import main

if __name__ == "__main__":
    main()
