"""What a kubelet does that makes a scenario required: a sentence, the place in its source, the tests on a true one.

Pure data. The source is that of Kubernetes v1.36.4, below pkg/kubelet/cm/devicemanager unless a path says otherwise.
The tests are below tests/node and play on a kubelet of that version; so are scenarios of tests/differential, by name.
"""

from dataclasses import dataclass

VERSION = "v1.36.4"
ROOT = "pkg/kubelet/cm/devicemanager"


@dataclass(frozen=True, slots=True)
class Evidence:
    does: str  # what the kubelet does
    source: str  # file and function
    node: str = ""  # module::test, where it is shown on a real node
    played: str = ""  # a scenario that is played on a real kubelet, and whose outcome is recorded

    @property
    def place(self) -> str:
        """Where it was seen, in one line."""
        path = self.source if self.source.startswith("pkg/") else f"{ROOT}/{self.source}"
        module, _, test = self.node.partition("::")
        shown = f"; shown on a real node by tests/node/{module}.py {test}" if self.node else ""
        played = f"; played on a real kubelet: {self.played}" if self.played else ""
        return f"Seen in {path}{shown}{played}"


_REGISTER = "plugin/v1beta1/server.go Register"
_CONNECT = "plugin/v1beta1/handler.go connectClient"
_RUN = "plugin/v1beta1/client.go Run"
_ALLOCATE = "manager.go allocateContainerResources"
_CHOOSE = "manager.go devicesToAllocate"
_LISTS = "manager.go genericDeviceUpdateCallback"
_START = "plugin/v1beta1/server.go Start"
_CLEAN = "manager.go CleanupPluginDirectory"
_DIAL = "plugin/v1beta1/client.go dial"
_VERSION = "plugin/v1beta1/server.go isVersionCompatibleWithPlugin"
_END = "plugin/v1beta1/handler.go runClient"
_KILL = "pkg/kubelet/kuberuntime/kuberuntime_container.go killContainer"
_BACK = "test_restarts::test_a_restarted_kubelet_has_everything_back"
_FAILS_LATER = "test_broken::test_a_list_that_fails_later_is_not_asked_for_again"
_HEALTH = "test_health::test_a_single_device_fails_and_recovers"
_SHORT_PODS = "test_endings::test_short_pods_in_a_row_leave_nothing_held"
_ODD_MOMENTS = "test_restarts::test_pods_keep_their_devices_over_kubelet_restarts_at_odd_moments"
_STARTS_FIRST = "test_restarts::test_a_daemon_that_starts_before_the_kubelet_waits_for_it"
_UNDISTURBED = "test_restarts::test_a_restarted_daemon_does_not_disturb_a_pod"
_INIT = "test_registration::test_init_and_sidecar_share_a_device_and_the_app_has_its_own"

EVIDENCE: dict[str, Evidence] = {
    "C01": Evidence(
        "It waits for Register calls and looks for no plugin by itself.",
        _REGISTER,
        "test_broken::test_a_plugin_that_runs_but_does_not_register_again_has_lost_its_devices_and_its_pod",
    ),
    "C02": Evidence(
        "It dials the endpoint inside Register, for at most 10 s.", _DIAL, played="an-endpoint-that-nobody-serves"
    ),
    "C03": Evidence("It refuses any version but v1beta1.", _VERSION, played="another-version-is-refused"),
    "C04": Evidence("It refuses a name that is no extended resource.", _REGISTER, played="an-invalid-name-is-refused"),
    "C06": Evidence(
        "It asks for the options inside Register, once, and fails the call without an answer.",
        "manager.go PluginConnected",
        "test_broken::test_a_plugin_that_does_not_tell_its_options_is_refused",
    ),
    "C08": Evidence("Register returns after the dial, which may take 10 s.", _DIAL),
    "C09": Evidence(
        "The devices of a resource are those of the last list; before the first list there are none.",
        _LISTS,
        "test_registration::test_registered_devices_are_capacity_and_allocatable",
    ),
    "C11": Evidence(
        "It puts each id into a set of healthy or of unhealthy ones, and counts both sets.",
        _LISTS,
        played="the-same-id-twice",
    ),
    "C12": Evidence("Only the exact value Healthy is healthy.", _LISTS, played="only-one-word-means-healthy"),
    "C13": Evidence(
        "It takes the 4 MiB that gRPC allows a message; a larger one ends the stream.",
        _RUN,
        played="a-list-too-large-for-a-message",
    ),
    "C14": Evidence("It never opens a stream again.", _RUN, _FAILS_LATER),
    "C15": Evidence(
        "A newer registration does not close the older connection: both streams stay open.",
        _CONNECT,
        "test_registration::test_a_new_daemon_replaces_the_list_of_the_old_one",
    ),
    "C18": Evidence(
        "It calls Allocate with the ids that it chose, and refuses the pod if the call fails.",
        _ALLOCATE,
        "test_registration::test_a_pod_gets_exactly_what_it_asks_for",
    ),
    "C19": Evidence(
        "It gives a pod any number of the devices that are healthy and free.",
        _CHOOSE,
        played="a-pod-gets-what-it-asks-for",
    ),
    "C20": Evidence(
        "It takes the first container response, and refuses the pod if there is none.",
        _ALLOCATE,
        played="an-answer-for-no-container",
    ),
    "C21": Evidence(
        "It hands the answer to the container runtime unread.",
        "pod_devices.go deviceRunContainerOptions",
        "test_registration::test_env_mounts_and_device_nodes_are_there_inside",
    ),
    "C22": Evidence(
        "It allocates from its last list, without the lock: the plugin's own list may be newer.", _ALLOCATE
    ),
    "C23": Evidence(
        "It allocates from its last list, without the lock: the plugin's own list may be newer.", _ALLOCATE
    ),
    "C24": Evidence(
        "It chooses by its last list: a device may have failed since.",
        _CHOOSE,
        played="unhealthy-devices-are-not-given-away",
    ),
    "C27": Evidence(
        "It frees the devices of pods that ended without a call to the plugin, and allocates them again.",
        "manager.go UpdateAllocatedDevices",
        _SHORT_PODS,
    ),
    "C30": Evidence(
        "It calls Allocate once per container and resource, for as long as pods come.", _ALLOCATE, _SHORT_PODS
    ),
    "C33": Evidence(
        "It calls PreStartContainer each time it creates a container of the pod.",
        "manager.go callPreStartContainerIfNeeded",
        played="it-is-called-before-each-start",
    ),
    "C37": Evidence(
        "It refuses the pod if GetPreferredAllocation returns an error.",
        "manager.go callGetPreferredAllocationIfAvailable",
        played="a-preference-that-fails",
    ),
    "C41": Evidence("It removes every socket when it starts, and knows no plugin.", _CLEAN, _BACK),
    "C42": Evidence("It removes every socket each time it starts.", _CLEAN, _ODD_MOMENTS),
    "C43": Evidence("It removes every socket when it starts, also one that was made a moment ago.", _CLEAN),
    "C44": Evidence("A kubelet that ends takes the Register call with it.", "plugin/v1beta1/server.go Stop"),
    "C45": Evidence("It opens the stream in the background, after Register has returned.", _CONNECT, _BACK),
    "C46": Evidence("A kubelet that ends takes the Allocate call with it.", "endpoint.go allocate", _ODD_MOMENTS),
    "C47": Evidence(
        "When an older stream ends it closes the newer connection, and never opens a stream again.", _END, _FAILS_LATER
    ),
    "C49": Evidence("A kubelet that starts replaces kubelet.sock.", _START, _BACK),
    "C50": Evidence(
        "It makes kubelet.sock when the container runtime is ready, which may be after the plugin.",
        _START,
        _STARTS_FIRST,
    ),
    "C51": Evidence("While it is down kubelet.sock stays, and nothing listens on it.", _START, _BACK),
    "C52": Evidence(
        "Register fails if the dial or the options fail.", _CONNECT, played="options-that-fail-end-the-registration"
    ),
    "C53": Evidence("It refuses any version but its own.", _VERSION, played="another-version-is-refused"),
    "C54": Evidence("It counts, logs and dials for every Register call.", _REGISTER),
    "C55": Evidence(
        "The end of an older stream takes down a newer registration of the same name.",
        _END,
        played="the-end-of-the-old-plugin-takes-the-new-one-along",
    ),
    "C57": Evidence(
        "It admits its pods again after a restart; a device that is not listed and healthy refuses the pod.",
        _CHOOSE,
        _BACK,
    ),
    "C58": Evidence("It knows a pod's devices by their ids alone.", "manager.go readCheckpoint", _UNDISTURBED),
    "C59": Evidence(
        "It kills a container that does not end within its grace period.",
        _KILL,
        "test_daemonset::test_a_daemonset_serves_pods_through_a_rolling_update_and_a_kubelet_restart",
    ),
    "C61": Evidence("A node that shuts down ends its containers, whether or not a kubelet answers plugins.", _KILL),
    "C63": Evidence("It removes sockets when it starts itself, not when a plugin does.", _CLEAN, _UNDISTURBED),
    "C64": Evidence(
        "It keeps its checkpoint in the directory, and all plugins share it.",
        "manager.go writeCheckpoint",
        "test_broken::test_a_plugins_own_directory_among_the_sockets_survives_kubelet_restarts",
    ),
    "C75": Evidence("A kubelet that ends, ends its calls.", "endpoint.go allocate"),
    "C80": Evidence(
        "When a plugin ends, its devices are unhealthy at once, and the container waits longer before each start.",
        "manager.go PluginDisconnected",
        "test_health::test_without_the_daemon_nothing_is_allocatable_and_the_capacity_stays",
    ),
    "C81": Evidence(
        "Each list replaces the one before. An id that goes while Allocate runs for it makes the kubelet panic; "
        "one that goes while a pod holds it refuses the pod after a restart.",
        _LISTS,
        "test_health::test_an_unplugged_device_that_is_held_stays_listed_until_it_is_free",
        played="a-device-leaves-the-list-during-its-allocate",
    ),
    "C82": Evidence(
        "It starts the container with whatever a good answer says.", _ALLOCATE, played="an-answer-with-nothing-in-it"
    ),
    "C85": Evidence("It calls Allocate once per container.", _ALLOCATE, _INIT),
    "C86": Evidence(
        "It gives the devices of an init container to the next container of the pod, with a call of its own.",
        _CHOOSE,
        _INIT,
    ),
    "C87": Evidence("A list is the only report of health that it gets.", _LISTS, _HEALTH),
    "C89": Evidence("After a restart it reads the new stream only.", _RUN, _BACK),
    "C90": Evidence("It accepts or refuses each Register call by itself.", _REGISTER),
}
