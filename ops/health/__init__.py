"""How healthy the memory is, and its repair."""
