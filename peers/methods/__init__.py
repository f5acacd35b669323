"""Methods: changes of the values by an algorithm besides the exchange: momentum, outer steps, blended directions."""
