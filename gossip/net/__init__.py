"""The only room with input and output: the driver's thread and loop, transports, key files, shared memory."""
