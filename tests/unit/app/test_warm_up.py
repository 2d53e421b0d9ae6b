"""What the daemon does once it has registered."""

from __future__ import annotations

import gc

from fairlead.app.warm import warm_up


def test_only_what_is_there_at_the_first_start_is_kept_from_the_collector():
    gc.unfreeze()
    try:
        warm_up()
        kept = gc.get_freeze_count()
        later = [{"made": "by a reload"} for _ in range(100)]
        warm_up()
        assert kept
        assert gc.get_freeze_count() <= kept
        assert later
    finally:
        gc.unfreeze()
