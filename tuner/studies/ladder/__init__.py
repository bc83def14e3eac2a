"""`tune ladder`: a kernel's optimisation steps, from the plainest to the best."""
