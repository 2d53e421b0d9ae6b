"""MPS: several programs on one GPU at once, looked after by a control daemon for each shared resource."""
