"""The backend keeps the contract; opened by its kind, as a configuration does it."""

from pathlib import Path

from fairlead.backends import registry
from fairlead.kit.clock import SystemClock
from fairlead.testing import check_backend


def add(leds: Path, name: str) -> Path:
    (leds / name).mkdir(parents=True)
    (leds / name / "brightness").write_text("0\n")
    return leds / name


def remove(led: Path) -> None:
    (led / "brightness").unlink()
    led.rmdir()


async def test_the_backend_keeps_the_contract(tmp_path: Path) -> None:
    add(tmp_path, "input0::capslock")
    second = add(tmp_path, "platform::mute")
    assert (
        await check_backend(
            lambda: registry.open("leds", {"directory": str(tmp_path)}, SystemClock()),
            unplug=lambda: remove(second),
            plug=lambda: add(tmp_path, "platform::mute"),
        )
        == []
    )
