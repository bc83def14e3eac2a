"""Where the rows of groups end, as a router of tokens leaves them: uneven, and some groups empty."""

import numpy as np


def ends(m, groups, rng):
    """Return the row behind each group's last."""
    cuts = np.sort(rng.integers(0, m + 1, groups - 1))
    if groups > 2:
        cuts[1] = cuts[0]  # an empty one
    return np.concatenate([cuts, [m]]).astype(np.int32)
