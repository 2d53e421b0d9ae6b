"""Kubernetes' own node tests of device plugins, with a Fairlead plugin where they expect the sample plugin.

Builds and runs the suite on nodes in namespaces of their own. Must not know how the plugin works.
"""
