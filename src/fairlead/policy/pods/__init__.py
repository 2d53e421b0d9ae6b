"""What pods ask for, and what annotations say that they have: one reader and one writer for every system. Pure."""
