"""What is done to numbers, block by block: copied, mixed, checked; and the memory that is used again."""
