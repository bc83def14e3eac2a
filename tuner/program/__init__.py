"""From a torch program to its products: what it calls, what that is worth, and tuned kernels in their place."""
