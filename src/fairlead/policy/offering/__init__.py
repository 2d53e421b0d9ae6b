"""What a device is offered as: rules, slots, units of memory, what stays listed, what the kubelet can bear. Pure."""
