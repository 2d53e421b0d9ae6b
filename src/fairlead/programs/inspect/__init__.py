"""`kubectl inspect gpushare`: who has how much memory of which GPU."""
