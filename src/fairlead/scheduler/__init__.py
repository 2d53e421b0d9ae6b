"""The scheduler's side: an extender of kube-scheduler that knows single devices."""
