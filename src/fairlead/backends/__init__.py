"""Where devices come from. One package per kind; `registry` opens them by name."""
