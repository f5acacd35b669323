"""Planning a grid for a torch model: read its layers, measure the machine if asked, and predict all splits."""
