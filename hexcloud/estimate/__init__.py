"""Pure numbers: how fast, how large, how risky. Every efficiency comes from the market's calibration."""
