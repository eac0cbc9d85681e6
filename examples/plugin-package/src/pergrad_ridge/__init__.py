"""Plugins for pergrad. Importing this package imports no framework."""
