"""What the chart calls the features of `fairlead.cluster.rbac`. The one place that has both names."""

from __future__ import annotations

from fairlead.cluster.rbac import FEATURES, Rule

SHARED = "`fairlead doslab`, `fairlead gpushare`"
FEATURE_NAMES = {
    "amounts": "the daemon with `amounts`",
    "assign": "the daemon with `assign`",
    "assign.nodeEnv": "the daemon with `assign.nodeEnv`",
    "assign.nodeLock": "the daemon with `assign.nodeLock`",
    "cluster.annotate": "the daemon with `cluster.annotate`",
    "cluster.condition": "the daemon with `cluster.condition`",
    "cluster.devices": "the daemon with `cluster.devices`",
    "cluster.events": "the daemon with `cluster.events`",
    "cluster.unhealthy": "the daemon with `cluster.unhealthy`",
    "config-label": "the daemon with `--config-label`",
    "gke.healthMonitoring": "`fairlead gke -enable-health-monitoring`",
    "gke.publishDriverVersion": "`fairlead gke -publish-driver-version`",
    "gpushare": SHARED,
    "doslab": SHARED,
    "volcano": "`fairlead volcano`",
    "config-manager": "`fairlead nvidia config-manager`",
    "gfd": "`fairlead nvidia labels`",
    "gfd.toNode": "`fairlead nvidia labels --to-node`",
    "amd.labeller": "`fairlead amd labels`",
    "extender": "`fairlead scheduler`",
    "extender.wake": "`fairlead scheduler` with `wake`",
    "extender.unhealthyConfigMaps": "`fairlead scheduler` with `unhealthyConfigMaps`, in `kube-system`",
}


def rules(*features: str) -> set[tuple[str, str, str]]:
    """Group, resource and verb of all that these features need."""
    return {
        (rule.group, rule.resource, verb)
        for feature in features
        for rule in FEATURES[FEATURE_NAMES[feature]]
        for verb in rule.verbs
    }


def table() -> dict[str, list[dict[str, object]]]:
    """The chart's file of rights."""

    def plain(rule: Rule) -> dict[str, object]:
        return {"group": rule.group, "resource": rule.resource, "verbs": list(rule.verbs)}

    return {feature: [plain(rule) for rule in FEATURES[name]] for feature, name in FEATURE_NAMES.items()}
