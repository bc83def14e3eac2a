"""Everything that touches the CUDA driver; imported only inside the measuring process."""
