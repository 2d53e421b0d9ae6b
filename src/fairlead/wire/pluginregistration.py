"""The kubelet's plugin-watcher API, v1, as messages and methods. Numbers are `proto/pluginregistration_v1.proto`'s."""

from __future__ import annotations

from fairlead.wire.method import Method
from fairlead.wire.proto import field, message


@message
class InfoRequest:
    pass


@message
class PluginInfo:
    type: str = field(1)
    name: str = field(2)
    endpoint: str = field(3)
    supported_versions: tuple[str, ...] = field(4)


@message
class RegistrationStatus:
    plugin_registered: bool = field(1)
    error: str = field(2)


@message
class RegistrationStatusResponse:
    pass


GET_INFO = Method("/pluginregistration.Registration/GetInfo", InfoRequest, PluginInfo)
NOTIFY_REGISTRATION_STATUS = Method(
    "/pluginregistration.Registration/NotifyRegistrationStatus", RegistrationStatus, RegistrationStatusResponse
)
