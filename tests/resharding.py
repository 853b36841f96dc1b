"""A memory with a past of some scopes in some partitions, and the same in another number of them."""
