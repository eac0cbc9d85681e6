"""What stands above a strategy in a file of its own; read as text."""
