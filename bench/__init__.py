"""Kernels, inputs and the runner that measures variants of them; see README.md."""
