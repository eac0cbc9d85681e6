"""The strategies that come with pergrad: one file each, in a folder per framework."""
