"""regdem: explain, rewrite and prove the register use of compiled NVIDIA kernels."""

__version__ = "0.1.0"
