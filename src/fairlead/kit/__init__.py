"""Tools that know nothing of devices: bounded files, strict decoding, notices, back-off, the clock."""
