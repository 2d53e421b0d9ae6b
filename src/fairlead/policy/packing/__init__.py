"""Which single devices of which node a pod gets, on the scheduler's side. Pure."""
