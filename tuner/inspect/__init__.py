"""What is examined beside a run: a kernel's file (check), its code (explain), it under NVIDIA's tools (tools)."""
