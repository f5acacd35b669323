"""The options of a launch: the command line over a TOML file over the defaults, each option in one place."""
