"""Ways to compute per-instance gradients, one module per framework; importing the package loads none of them."""
