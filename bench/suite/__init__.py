"""What is measured: kernels with their launches and inputs, and the variants made of them."""
