"""Good documents of every kind that is read here, with as many keys as they may have: to be spoiled one by one."""

from __future__ import annotations

from typing import Any

OURS: dict[str, Any] = {
    "backends": [
        {
            "kind": "sim",
            "name": "a",
            "fleet": "small",
            "speed": 2,
            "timeline": [{"at": "5s", "do": "fail", "device": 0, "xid": 79, "message": "m"}],
        },
        {
            "kind": "paths",
            "name": "b",
            "hostRoot": "/nowhere",
            "poll": "30s",
            "devices": [
                {
                    "name": "nic-{name}",
                    "paths": ["/dev/nic*"],
                    "permissions": "rw",
                    "allow": ["device"],
                    "attributes": {"a": "b"},
                    "mounts": [{"host": "/x", "container": "/y", "readOnly": True}],
                    "optional": True,
                }
            ],
        },
        {
            "kind": "amd",
            "name": "d",
            "hostRoot": "/nowhere",
            "devRoot": "/",
            "ways": ["cdi-cri"],
            "cdi": {"directory": "/var/run/cdi", "vendor": "amd.com", "annotationPrefix": "cdi.k8s.io/"},
            "health": {"checks": ["kfd"], "tolerated": {"umc": 2}, "exporter": "/x.sock"},
            "poll": "5s",
            "deadline": "20s",
        },
        {
            "kind": "paths",
            "name": "e",
            "devices": [
                {"preset": "kvm"},
                {"pci": {"vendor": "8086", "device": "0b30"}, "name": "{name}"},
                {"rdma": {"per": "port"}},
                {"sysfs": {"class": ["tty"], "together": True}},
                {"bundle": {"name": "uart", "groups": [{"usb": [{"vendor": "0403", "product": "6001"}]}]}},
                {"tree": {"matches": [{"match": "^tty", "count": 2}]}},
            ],
        },
        {
            "kind": "nvidia",
            "name": "c",
            "discovery": "auto",
            "driverRoot": "/",
            "driverRootMount": "/nowhere",
            "devRoot": "/",
            "hostRoot": "/nowhere",
            "ways": ["envvar"],
            "imex": {"channels": [0], "required": False},
            "cdi": {
                "directory": "/var/run/cdi",
                "vendor": "k8s.x",
                "annotationPrefix": "cdi.k8s.io/",
                "hook": "/usr/bin/x",
                "featureFlags": [],
                "disabledHooks": ["all"],
            },
            "mps": {"root": "/mps", "replicas": {"nvidia.com/gpu": 4}, "devices": {"nvidia.com/gpu": ["0"]}},
            "health": {
                "ignoredXids": [13],
                "watchedXids": [31],
                "faults": {"xid-94": {"kind": "transient", "scope": "gpu", "hold": "10m", "message": "m"}},
                "eventWait": "5s",
            },
            "deadline": "20s",
        },
    ],
    "rules": [
        {
            "match": {
                "id": ["a*"],
                "index": [0, "1:*"],
                "pci": "0*",
                "vendor": "nvidia",
                "memory": ">=40GiB",
                "numa": [0, 1],
                "attributes": {"a": "b"},
                "first": 2,
            },
            "resource": "nvidia.com/gpu",
            "replicas": 4,
            "placement": "pack",
            "perContainer": 2,
            "env": {"IDS": "{ids}"},
            "annotations": {"a/b": "{resource}"},
            "mounts": [{"host": "/usr/lib/x", "container": "/x", "readOnly": False}],
            "devices": [{"host": "/dev/ctl", "container": "/dev/c", "permissions": "rw"}],
        },
        {"match": {"vendor": "amd"}, "exclude": True},
        {
            "match": {"vendor": "x"},
            "resource": "example.com/whole",
            "also": [{"resource": "example.com/also", "replicas": 2, "placement": "spread", "perContainer": 1}],
        },
        {
            "match": {"backend": "a"},
            "resource": "example.com/mem",
            "memory": {"unit": "256MiB", "straddle": False, "grow": True, "required": False, "ids": "{id}-_-{n}"},
            "assign": {
                "device": "a/b",
                "by": "index",
                "time": "t/t",
                "assigned": "x/y",
                "unassigned": ["false"],
                "needs": ["n/n"],
                "wait": "200ms",
                "marks": {"a/b": "true"},
            },
        },
    ],
    "amounts": [
        {"resource": "example.com/each", "perDevice": 100, "match": {"vendor": "x"}},
        {"resource": "example.com/total", "total": "1k"},
    ],
    "cluster": {"node": "n", "server": "https://10.0.0.1:6443", "tokenFile": "/x", "caFile": "/y"},
    "kubelet": {
        "directory": "/tmp/k",
        "registration": "socket",
        "podResources": "/x/y.sock",
        "watcherDirectory": "/tmp/w",
        "socketName": "fairlead-{domain}_{name}.sock",
    },
    "health": {
        "probeInterval": "5s",
        "restInterval": "5s",
        "probeDeadline": "5s",
        "suspect": "5s",
        "hold": "10s",
        "holdGrowth": 1.5,
        "holdMax": "1h",
        "probation": "5s",
        "cleanProbes": 2,
        "flapWindow": "1h",
        "flapCount": 5,
    },
    "scan": {"interval": "5m", "deadline": 3, "required": False},
    "status": {"socket": "/tmp/s.sock"},
    "log": {"format": "json"},
    "instance": "two",
}
FLEET: dict[str, Any] = {
    "name": "f",
    "description": "d",
    "devices": [
        {
            "count": 2,
            "id": "GPU-{uuid}",
            "index": "{n}",
            "vendor": "v",
            "model": "m",
            "memory": "80GiB",
            "pci": ["0000:01:00.0", "0000:02:00.0"],
            "numa": [0, 1],
            "links": {"scheme": "nvswitch", "width": 18, "pairs": {"0-1": 200}},
            "nodes": ["/dev/x{n}", {"path": "/dev/y", "container": "/dev/z", "permissions": "rw"}],
            "attributes": {"a": "b"},
        },
        {"count": 1, "memory": "40GiB", "partitions": [{"profile": "1g.10gb", "count": 2, "memory": "10GiB"}]},
    ],
}
NVIDIA: dict[str, Any] = {
    "version": "v1",
    "flags": {
        "migStrategy": "none",
        "failOnInitError": True,
        "mpsRoot": "/mps",
        "nvidiaDriverRoot": "/",
        "nvidiaDevRoot": "/",
        "gdrcopyEnabled": False,
        "useNodeFeatureAPI": False,
        "deviceDiscoveryStrategy": "auto",
        "plugin": {
            "passDeviceSpecs": False,
            "deviceListStrategy": ["envvar"],
            "deviceIDStrategy": "uuid",
            "cdiAnnotationPrefix": "cdi.k8s.io/",
            "nvidiaCTKPath": "/usr/bin/nvidia-ctk",
            "containerDriverRoot": "/driver-root",
            "sharedDevicesAllocationPolicy": "distributed",
        },
        "gfd": {"oneshot": False, "sleepInterval": "60s", "outputFile": "/x", "machineTypeFile": "/y"},
    },
    "resources": {
        "gpus": [{"pattern": "*", "name": "nvidia.com/gpu"}],
        "mig": [{"pattern": "1g*", "name": "nvidia.com/mig"}],
    },
    "sharing": {
        "timeSlicing": {
            "renameByDefault": False,
            "failRequestsGreaterThanOne": True,
            "resources": [{"name": "nvidia.com/gpu", "rename": "shared", "devices": [0], "replicas": 4}],
        }
    },
    "imex": {"channelIDs": [0], "required": False},
}
VOLCANO: dict[str, Any] = {"version": "v1beta1", "flags": {"GPUStrategy": "share", "GPUMemoryFactor": 1}}
GKE: dict[str, Any] = {
    "GPUPartitionSize": "3g.20gb",
    "MaxTimeSharedClientsPerGPU": 0,
    "GPUSharingConfig": {"GPUSharingStrategy": "time-sharing", "MaxSharedClientsPerGPU": 4},
    "HealthCriticalXid": [48, 79],
}
KUBECONFIG: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "clusters": [
        {
            "name": "k",
            "cluster": {
                "server": "https://10.0.0.1:6443",
                "tls-server-name": "x",
                "certificate-authority": "/nowhere",
                "certificate-authority-data": "",
                "insecure-skip-tls-verify": False,
            },
        }
    ],
    "users": [
        {"name": "u", "user": {"token": "SECRET", "client-certificate": "", "client-key": ""}},
        {
            "name": "x",
            "user": {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "./x",
                    "args": ["a"],
                    "env": [{"name": "A", "value": "b"}],
                }
            },
        },
    ],
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
}

GENERIC: dict[str, Any] = {
    "domain": "example.org",
    "listen": "127.0.0.1:0",
    "log-level": "debug",
    "plugin-directory": "/plugins",
    "devices": [
        {
            "name": "capture",
            "groups": [
                {
                    "count": 2,
                    "paths": [
                        {
                            "path": "/dev/video[0-9]*",
                            "mountPath": "/dev/cameras/",
                            "permissions": "rw",
                            "limit": 2,
                            "optional": True,
                        },
                        {"path": "/etc/cameras", "type": "Mount", "readOnly": True},
                    ],
                },
                {"usb": [{"vendor": "1050", "product": "0407", "serial": "51"}]},
            ],
        }
    ],
}

SMARTER: list[dict[str, Any]] = [
    {"devicematch": "^video[0-9]*$", "nummaxdevices": 10},
    {"devicematch": "nvidia-gpu", "nummaxdevices": 1},
]
