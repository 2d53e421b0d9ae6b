"""ListAndWatch: which devices count, and what the end of a stream means."""

from __future__ import annotations

from tests.differential.plugin import device
from tests.differential.stage import Stage, scenario

FOUR_MIB = 4 * 1024 * 1024


@scenario()
async def health_comes_and_goes(s: Stage) -> None:
    plugin = await s.ready("a", "b", "c", "d")
    await s.saw_numbers("all well", 4, 4)
    plugin.publish(device("a", "Unhealthy"), device("b"), device("c"), device("d"))
    await s.saw_numbers("one bad", 3, 4)
    await s.saw_offered("one bad")
    s.saw_checkpoint("one bad")
    plugin.publish(device("a", "Unhealthy"), device("b", "Unhealthy"), device("c"), device("d"))
    await s.saw_numbers("two bad", 2, 4)
    plugin.publish(*map(device, "abcd"))
    await s.saw_numbers("all well again", 4, 4)


@scenario()
async def only_one_word_means_healthy(s: Stage) -> None:
    words = ("Healthy", "healthy", "HEALTHY", "", "Unknown", "Healthy ")
    plugin = await s.ready(*(device(f"d{number}", word) for number, word in enumerate(words)))
    await s.saw_numbers("six words", 1, 6)
    await s.saw_offered("six words")
    plugin.publish(device("d0", "healthy"))
    await s.saw_numbers("one word", 0, 1)


@scenario()
async def devices_leave_and_come(s: Stage) -> None:
    plugin = await s.ready("a", "b", "c")
    plugin.publish(device("a"))
    await s.saw_numbers("two left", 1, 1)
    plugin.publish(*map(device, "axyz"))
    await s.saw_numbers("three came", 4, 4)
    await s.saw_offered("three came")
    plugin.publish()
    await s.saw_numbers("nothing is listed", 0, 0)
    await s.saw_pod(await s.run("pod", 1))


@scenario()
async def an_empty_list_from_the_start(s: Stage) -> None:
    plugin = await s.plugin()
    s.saw("register", await plugin.register())
    await s.saw_numbers("nothing is listed", 0, 0)
    await s.saw_pod(await s.run("pod", 1))


@scenario()
async def the_same_id_twice(s: Stage) -> None:
    plugin = await s.plugin("a", "a", "b")
    s.saw("register", await plugin.register())
    await s.saw_numbers("a twice", 2, 2)
    await s.saw_offered("a twice")
    plugin.publish(device("a"), device("a", "Unhealthy"), device("b"))
    await s.saw_numbers("a in both states", 2, 3)
    await s.saw_offered("a in both states")
    await s.saw_pod(await s.run("pod", 2))


@scenario()
async def odd_ids(s: Stage) -> None:
    plugin = await s.plugin("", " ", "x" * 200, "ü/日本", "a,b")
    s.saw("register", await plugin.register())
    await s.saw_numbers("listed", 5, 5)
    await s.saw_offered("listed")
    await s.saw_pod(await s.run("pod", 5))
    await s.saw_listed("listed")


@scenario()
async def a_list_too_large_for_a_message(s: Stage) -> None:
    plugin = await s.ready("a")
    plugin.publish(*(device(f"{number:0>200}") for number in range(FOUR_MIB // 200)))
    await s.saw_numbers("four MiB", 0, 1)
    await s.saw_pod(await s.run("pod", 1))


@scenario()
async def a_list_that_just_fits(s: Stage) -> None:
    plugin = await s.plugin(*(device(f"{number:0>1000}") for number in range(4000)))
    s.saw("register", await plugin.register())
    await s.saw_numbers("just below four MiB", 4000, 4000)


@scenario()
async def a_list_that_is_no_message(s: Stage) -> None:
    plugin = await s.ready("a")
    plugin.garbage.add("ListAndWatch")
    plugin.publish(device("a"), device("b"))
    await s.saw_numbers("broken", 0, 1)
    plugin.garbage.clear()
    s.saw("register again", await plugin.register())
    await s.saw_numbers("registered again", 2, 2)


@scenario()
async def the_stream_ends_at_once(s: Stage) -> None:
    plugin = await s.plugin("a")
    plugin.fail["ListAndWatch"] = "not today"
    s.saw("register", await plugin.register())
    await s.saw_numbers("no list", 0, 0)
    await s.saw_pod(await s.run("pod", 1))
    plugin.fail.clear()
    s.saw("register again", await plugin.register())
    await s.saw_numbers("a list", 1, 1)


@scenario()
async def a_plugin_without_lists(s: Stage) -> None:
    plugin = await s.plugin()
    plugin.missing.add("ListAndWatch")
    await plugin.serve()
    s.saw("register", await plugin.register())
    await s.saw_numbers("no list", 0, 0)


@scenario()
async def the_stream_ends_later(s: Stage) -> None:
    plugin = await s.ready("a", device("b", "Unhealthy"))
    await s.saw_numbers("listed", 1, 2)
    plugin.end_streams()
    await s.saw_numbers("ended", 0, 2)
    await s.saw_offered("ended")
    await s.saw_pod(await s.run("pod", 1))
    s.saw("register again", await plugin.register())
    await s.saw_numbers("registered again", 1, 2)


@scenario()
async def the_stream_breaks_later(s: Stage) -> None:
    plugin = await s.ready("a")
    plugin.break_streams()
    await s.saw_numbers("broken", 0, 1)
    await s.saw_no_numbers("still")


@scenario()
async def the_plugin_dies(s: Stage) -> None:
    plugin = await s.ready("a", "b")
    await plugin.stop()
    await s.saw_numbers("dead", 0, 2)
    await s.saw_pod(await s.run("pod", 1))


@scenario()
async def a_removed_socket_file_changes_nothing(s: Stage) -> None:
    plugin = await s.ready("a")
    plugin.path.unlink()
    await s.saw_no_numbers("removed")
    plugin.publish(device("a"), device("b"))
    await s.saw_numbers("the stream goes on", 2, 2)
    await s.saw_pod(await s.run("pod", 2))
