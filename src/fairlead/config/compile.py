"""From what people wrote to what the engine uses: rules, with every contradiction named at once.

A problem is a path into the file and a sentence; `load` turns the path into a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from fairlead.config.rulespec import AlsoSpec, CleanupSpec, MatchSpec, MemorySpec, RuleSpec
from fairlead.config.spec import Config, Registration
from fairlead.inject.templates import ANNOTATION, ASSIGNMENT_VARIABLES, EACH, MEMORY_VARIABLES, NAME
from fairlead.kit.decoding import Bytes
from fairlead.kit.documents import Path
from fairlead.model.device import DeviceNode
from fairlead.model.edits import Edits, Mount
from fairlead.model.errors import InvalidName
from fairlead.model.names import SOCKET_NAME, ResourceName, parse_resource_name, socket_name
from fairlead.model.resource import Cleanup, MemoryTerms, Strategy, Terms
from fairlead.policy.offering.memory import MIB, PER_CONTAINER_MAX
from fairlead.policy.offering.rules import Rule, Selector, check_rules

Problem = tuple[Path, str]

RECORD_MIN_BYTES = 2**20
DELAY_MAX_S = 10.0
SHORTEST_S = 0.01  # anything below is a busy loop
SOCKET_PATH_MAX_BYTES = 107
BACKENDS_MAX = 64
RULES_MAX = 1000
CLEANUP_WORDS_MAX, CLEANUP_WORD_MAX, CLEANUP_MAX_S = 64, 4096, 600.0

# As text: compiled when a configuration has such a key, not by every start.
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_INSTANCE = r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?"
_PERMISSIONS = r"(?!.*(.).*\1)[rwm]+"
_SOCKET_NAME = r"(?!\.)(?!kubelet\.sock$)[-A-Za-z0-9_.{}]{1,100}"
_FIELD = r"\{[A-Za-z][A-Za-z0-9_-]*\}"
_IDS = r"\{id\}(/[a-z]+)\{n\}"
_BOUND = r"(>=|<=|>|<)\s*(.+)"

# What a container learns of its share of memory, unless the rule has an environment of its own.
SHARE_ENV = {
    "FAIRLEAD_MEMORY_DEVICES_{resource}": "{ids}",
    "FAIRLEAD_MEMORY_MIB_{resource}": "{memoryMib}",
    "FAIRLEAD_MEMORY_PERCENT_{resource}": "{memoryPercent}",
}


def compile_rules(config: Config) -> tuple[tuple[Rule, ...], list[Problem]]:
    """The rules, and everything that is wrong with them. Rules are complete only if there is no problem."""
    problems: list[Problem] = []
    rules = tuple(_rule(spec, ("rules", number), problems) for number, spec in enumerate(config.rules))
    if not problems:
        problems += [(("rules",), text) for text in check_rules(rules)]
    return rules, problems


def check(config: Config) -> tuple[tuple[Rule, ...], list[Problem]]:
    """The rules, and everything that is wrong beyond types. Rules are complete only if there is no problem."""
    problems: list[Problem] = [
        ((key,), f"{len(given):,} of them; {most:,} is the limit")
        for key, given, most in (
            ("backends", config.backends, BACKENDS_MAX),
            ("rules", config.rules, RULES_MAX),
            ("amounts", config.amounts, RULES_MAX),
        )
        if len(given) > most
    ]
    if problems:
        return (), problems  # each of them would be looked at
    listen, port = config.http.listen, config.http.listen.rpartition(":")[2]
    if listen and not (listen != port and port.isdecimal() and len(port) < 6 and int(port) < 1 << 16):
        problems.append((("http", "listen"), f"{listen!r:.80} is not an address and a port, such as 127.0.0.1:9402"))
    if not config.backends:
        problems.append((("backends",), "no backend is given, so there are no devices. Add one, such as: - kind: sim"))
    for number, backend in enumerate(config.backends):
        if not isinstance(backend.get("kind"), str):
            problems.append((("backends", number), "the key 'kind' is missing: it names the backend, such as sim"))
    if not config.rules and not config.amounts:
        problems.append((("rules",), "no rule is given, so no device would be offered. Add one with a resource"))
    if not re.fullmatch(_INSTANCE, config.instance):
        problems.append((("instance",), f"{config.instance!r} must be 1 to 32 lower-case letters, digits and '-'"))
    for path, value in (
        (("kubelet", "directory"), config.kubelet.directory),
        (("kubelet", "watcherDirectory"), config.kubelet.watcher_directory),
        (("kubelet", "podResources"), config.kubelet.pod_resources),
        (("kubelet", "socket"), config.kubelet.socket),
        (("status", "socket"), config.status.socket),
    ):
        if value:
            problems += _absolute(path, value)
    if config.storm.delay > DELAY_MAX_S:
        late = f"{config.storm.delay:g} s is too long: the kubelet waits meanwhile. Give 10s or less"
        problems.append((("storm", "delay"), late))
    elif config.storm.within <= config.storm.delay:
        problems.append((("storm", "within"), f"{config.storm.within:g} s must be longer than storm.delay"))
    if config.record.max_size < RECORD_MIN_BYTES:
        problems.append((("record", "maxSize"), f"{config.record.max_size:,} bytes are too few: give 1MiB or more"))
    for path, seconds in (
        (("scan", "interval"), config.scan.interval),
        (("scan", "deadline"), config.scan.deadline),
        (("health", "probeInterval"), config.health.probe_interval),
        (("health", "probeDeadline"), config.health.probe_deadline),
    ):
        if seconds < SHORTEST_S:
            problems.append((path, f"{seconds:g} s is too short. Give {SHORTEST_S:g} s or more"))
    problems += _names(config)
    rules, wrong = compile_rules(config)
    return rules, problems + wrong


def _names(config: Config) -> Iterator[Problem]:
    """Names that stand twice, and socket paths that no kernel takes."""
    taken = set()
    for number, backend in enumerate(config.backends):
        name = backend.get("name")
        if name is not None and not isinstance(name, str):
            yield ("backends", number, "name"), f"expected text, got {name!r}"
        elif name in taken:
            yield ("backends", number, "name"), f"{name!r} is the name of another backend already"
        elif name is not None:
            taken.add(name)
    watched = config.kubelet.registration is Registration.WATCHER
    directory = config.kubelet.watcher_directory if watched else config.kubelet.directory
    if not directory:
        yield ("kubelet", "watcherDirectory" if watched else "directory"), "it is empty. Give the kubelet's directory"
    for number, rule in enumerate(config.rules):
        paths: list[tuple[Path, str]] = [(("rules", number, "resource"), rule.resource)]
        paths += [(("rules", number, "also", place, "resource"), part.resource) for place, part in enumerate(rule.also)]
        for path, resource in paths:
            file = socket_name(ResourceName(resource), config.kubelet.socket_name)
            size = len(f"{directory}/{file}".encode(errors="surrogatepass"))
            if resource and size > SOCKET_PATH_MAX_BYTES:
                limit = f"{SOCKET_PATH_MAX_BYTES} is the limit of unix sockets"
                over = f"its socket in {directory} would have a path of {size} bytes; {limit}"
                yield path, f"{over}. Use a shorter directory or resource name"
    template = config.kubelet.socket_name
    if not re.fullmatch(_SOCKET_NAME, template) or ("{name}" not in template and not _has_one_socket(config)):
        yield (
            ("kubelet", "socketName"),
            (
                f"{template!r} must be a plain file name that holds {{name}}, such as {SOCKET_NAME}. "
                "A name without it is for a single resource"
            ),
        )
    cluster = config.cluster
    follows = config.amounts or cluster.unhealthy or any(rule.assign for rule in config.rules)
    if cluster.node_metadata and not cluster.node and follows:
        yield ("cluster", "nodeMetadata"), "amounts, assign and unhealthy need the name at the start. Set cluster.node"
    if any(rule.also for rule in config.rules) and not config.kubelet.pod_resources:
        yield ("kubelet", "podResources"), "it is empty, but a rule has also: the pods must be known. Give the socket"
    if any(rule.assign for rule in config.rules) and not config.kubelet.pod_resources:
        yield ("kubelet", "podResources"), "it is empty, but a rule has assign: who got what is read there. Give it"


def _has_one_socket(config: Config) -> bool:
    """Whether all rules together can only ever make one resource."""
    names = {rule.resource for rule in config.rules if rule.resource}
    names |= {part.resource for rule in config.rules for part in rule.also}
    return len(names) <= 1 and not any("{" in name for name in names)


def _absolute(path: Path, value: str) -> Iterator[Problem]:
    if not value.startswith("/"):
        yield path, f"{value!r} must be an absolute path"
    elif "\0" in value or ".." in value.split("/"):
        yield path, f"{value!r} must not contain '..' or a NUL"


def _rule(spec: RuleSpec, at: Path, problems: list[Problem]) -> Rule:
    resource: ResourceName | None = None
    also = tuple(_also(part, (*at, "also", number), problems) for number, part in enumerate(spec.also))
    if spec.exclude and spec.resource:
        problems.append((at, "has both resource and exclude. A device is either offered or left out"))
    elif not spec.exclude and not spec.resource:
        problems.append((at, "the key 'resource' is missing. Name it, such as example.com/gpu, or set exclude: true"))
    elif spec.resource:
        resource = _resource(spec.resource, (*at, "resource"), problems)
    memory = compile_memory(spec.memory, (*at, "memory"), problems) if spec.memory is not None else None
    assign = None
    if spec.assign is not None:
        from fairlead.config.assign import compile_assign  # noqa: PLC0415 - few daemons have it

        assign = compile_assign(spec.assign, {**spec.annotations, **spec.env}, (*at, "assign"), problems)
    strategy, most = spec.placement, spec.per_container
    if memory is not None:
        strategy = Strategy.SPREAD if strategy is Strategy.SPREAD else Strategy.PACK
        most = most or PER_CONTAINER_MAX
        spec = replace(spec, env=spec.env or SHARE_ENV)
    return Rule(
        selector=compile_selector(spec.match, (*at, "match"), problems),
        resource=resource,
        replicas=spec.replicas,
        mark=_mark(spec, (*at, "ids"), problems),
        terms=Terms(
            strategy,
            _edits(spec, at, problems),
            most,
            memory,
            assign,
            spec.uniform,
            compile_cleanup(spec.cleanup, (*at, "cleanup"), problems),
        ),
        also=also,
        label=f"rules[{at[-1]}]",
    )


def compile_cleanup(spec: CleanupSpec | None, at: Path, problems: list[Problem]) -> Cleanup | None:
    if spec is None:
        return None
    command, deadline_s = tuple(spec.command), float(spec.deadline)
    if not command or not command[0].startswith("/"):
        problems.append(((*at, "command"), "the program must be an absolute path, such as /usr/local/bin/scrub"))
    if len(command) > CLEANUP_WORDS_MAX or any(len(word) > CLEANUP_WORD_MAX or "\0" in word for word in command):
        bounds = f"{CLEANUP_WORDS_MAX} words of at most {CLEANUP_WORD_MAX} characters"
        problems.append(((*at, "command"), f"a command has at most {bounds}"))
    if not 0 < deadline_s <= CLEANUP_MAX_S:
        problems.append(((*at, "deadline"), f"it is over 0 s and at most {CLEANUP_MAX_S / 60:.0f}m, such as 20s"))
    return Cleanup(command, deadline_s)


def compile_memory(spec: MemorySpec, at: Path, problems: list[Problem]) -> MemoryTerms:
    if spec.unit == "auto":
        ids = _ids(spec.ids, (*at, "ids"), problems)
        return MemoryTerms(straddle=spec.straddle, ids=ids, max_stall_s=spec.max_stall)
    try:
        unit_bytes = int(Bytes.parse(spec.unit))
    except ValueError:
        unit_bytes = 0
    if unit_bytes < MIB or unit_bytes % MIB:
        problems.append(((*at, "unit"), f"{spec.unit!r} is no unit. Write auto, or whole MiB, such as 256MiB or 1GiB"))
        unit_bytes = MIB
    ids = _ids(spec.ids, (*at, "ids"), problems)
    return MemoryTerms(
        unit_bytes,
        grow=spec.grow,
        straddle=spec.straddle,
        required=spec.required,
        ids=ids,
        max_stall_s=spec.max_stall,
    )


def _ids(text: str, at: Path, problems: list[Problem]) -> str:
    """The form of ids, without its ordinal."""
    stem = text.removesuffix(EACH)
    names = "{id}" in stem or "{index}" in stem
    plain = stem.replace("{id}", "x").replace("{index}", "0")
    if text and (stem == text or not names or not re.fullmatch(r"[!-z|~]*[^0-9]", plain)):
        problems.append((at, f"{text!r} must name the device, {{id}} or {{index}}, then no digit, and end with {{n}}"))
    return stem


def _mark(spec: RuleSpec, at: Path, problems: list[Problem]) -> str:
    if not spec.ids:
        return ""
    found = re.fullmatch(_IDS, spec.ids)
    if found is None:
        form = "{id}, a slash, lower-case letters and {n}, such as {id}/vgpu{n}"
        problems.append((at, f"{spec.ids!r} must be {form}"))
    elif spec.memory is not None:
        problems.append((at, "units of memory are named by memory.ids. Leave one of the two out"))
    return found[1] if found else ""


def _also(spec: AlsoSpec, at: Path, problems: list[Problem]) -> Rule:
    return Rule(
        resource=_resource(spec.resource, (*at, "resource"), problems),
        replicas=spec.replicas,
        terms=Terms(spec.placement, per_container=spec.per_container),
    )


def _resource(text: str, at: Path, problems: list[Problem]) -> ResourceName | None:
    """A name, or one with {attribute} in it: then its form is checked with a word in that place."""
    try:
        parse_resource_name(re.sub(_FIELD, "x", text))
    except InvalidName as error:
        problems.append((at, str(error)))
        return None
    domain = text.partition("/")[0]
    if "{" in domain:
        problems.append((at, f"{text!r}: the domain must be plain; {{attribute}} may stand after the '/'"))
    return ResourceName(text)


def compile_selector(spec: MatchSpec, at: Path, problems: list[Problem]) -> Selector:
    low, high = _memory(spec.memory, (*at, "memory"), problems)
    return Selector(
        ids=_many(spec.id),
        indexes=_many(spec.index),
        pci=_many(spec.pci),
        vendors=_many(spec.vendor),
        models=_many(spec.model),
        backends=_many(spec.backend),
        memory_min_bytes=low,
        memory_max_bytes=high,
        numa=(spec.numa,) if isinstance(spec.numa, int) else tuple(spec.numa),
        attributes=tuple((name, _many(globs)) for name, globs in spec.attributes.items()),
        first=spec.first,
    )


def _many(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else (str(value),)


def _memory(text: str, at: Path, problems: list[Problem]) -> tuple[int | None, int | None]:
    """`>=40GiB`, `<24GiB`, `16GiB..24GiB` (both included), `80GiB` (just that)."""
    if not text:
        return None, None
    try:
        if ".." in text:
            low, _, high = text.partition("..")
            bounds = Bytes.parse(low), Bytes.parse(high)
            if bounds[0] > bounds[1]:
                problems.append((at, f"{text!r} is empty: the first bound is the larger one"))
            return bounds
        if found := re.fullmatch(_BOUND, text.strip()):
            bound = Bytes.parse(found[2])
            return {">=": (bound, None), ">": (bound + 1, None), "<=": (None, bound), "<": (None, bound - 1)}[found[1]]
        exact = Bytes.parse(text)
    except ValueError:
        problems.append((at, f"{text!r} is not a memory range. Write >=40GiB, <24GiB, 16GiB..24GiB or 80GiB"))
        return None, None
    return exact, exact


def _edits(spec: RuleSpec, at: Path, problems: list[Problem]) -> Edits:
    shares = spec.memory is not None
    for name in spec.env:
        plain = name.replace(EACH, "0").replace(NAME, "X") if shares else name
        if not re.fullmatch(_ENV_NAME, plain):
            problems.append(((*at, "env"), f"{name!r} is not a name for an environment variable"))
    for key, texts in (("env", spec.env), ("annotations", spec.annotations)):
        for name, text in texts.items():
            if shares and "{slots}" in text:
                problems.append(
                    ((*at, key), f"{name!r} names {{slots}}: thousands of units are too many for a variable")
                )
            found = [word for word in MEMORY_VARIABLES if f"{{{word}}}" in text]
            if found and not shares:
                problems.append(((*at, key), f"{name!r} names {{{found[0]}}}, which needs a rule with memory"))
            found = [word for word in (*ASSIGNMENT_VARIABLES, ANNOTATION) if f"{{{word}" in text]
            if found and spec.assign is None:
                problems.append(((*at, key), f"{name!r} names {{{found[0]}}}, which needs a rule with assign"))
    paths = [("mounts", number, mount.host, mount.container) for number, mount in enumerate(spec.mounts)]
    paths += [("devices", number, node.host, node.container) for number, node in enumerate(spec.devices)]
    for key, number, host, container in paths:
        problems += _absolute((*at, key, number, "host"), host)
        problems += _absolute((*at, key, number, "container"), container or host) if host.startswith("/") else ()
    problems += [
        ((*at, "devices", number, "permissions"), f"{node.permissions!r} must be some of r, w and m, each once")
        for number, node in enumerate(spec.devices)
        if not re.fullmatch(_PERMISSIONS, node.permissions)
    ]
    return Edits(
        env=spec.env,
        annotations=spec.annotations,
        mounts=tuple(Mount(mount.host, mount.container or mount.host, mount.read_only) for mount in spec.mounts),
        nodes=tuple(DeviceNode(node.host, node.container, node.permissions) for node in spec.devices),
    )
