"""From a candidate to a cubin: NVRTC in children, and the cubins kept."""
