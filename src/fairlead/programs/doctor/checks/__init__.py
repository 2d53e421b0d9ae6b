"""All checks, by chapter. A code is never given to another check, and never taken from one."""

from fairlead.programs.doctor.checks.cluster import CLUSTER
from fairlead.programs.doctor.checks.hardware import HARDWARE
from fairlead.programs.doctor.checks.kubelet import KUBELET
from fairlead.programs.doctor.checks.nvidia import GPUS
from fairlead.programs.doctor.checks.runtime import RUNTIMES

CHAPTERS = (KUBELET, HARDWARE, GPUS, RUNTIMES, CLUSTER)
CHECKS = tuple(check for chapter in CHAPTERS for check in chapter.checks)

__all__ = ["CHAPTERS", "CHECKS"]
