"""Studies: one source compiled several ways, compared by what the machine code became."""
