"""Who rents machines: real process trees on this machine, and clouds."""
