"""The registration life cycle: every way to lose the kubelet leads back to a registered, streaming plugin."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.fronts.deviceplugin import lifecycle as lc
from fairlead.fronts.deviceplugin.lifecycle import Life, Phase, step


def play(*events, life=None):
    """Runs events through the machine; returns the life and the actions of the last event."""
    life = life or Life()
    actions: Any = ()
    for event in events:
        life, actions = step(life, event)
    return life, actions


STREAMING = play(lc.Started(), lc.Bound(), lc.Registered(), lc.StreamOpened())[0]


def test_it_serves_before_it_registers():
    life, actions = play(lc.Started())
    assert (life.phase, actions) == (Phase.BIND, (lc.Bind(),))
    life, actions = step(life, lc.Bound())
    assert (life.phase, actions) == (Phase.REGISTER, (lc.Register(),))


def test_success_of_register_is_not_yet_success():
    life, actions = play(lc.Started(), lc.Bound(), lc.Registered())
    assert life.phase is Phase.AWAIT_STREAM
    assert actions == (lc.Wait(lc.PACE.stream_s),)


def test_a_stream_makes_it_streaming():
    assert STREAMING.phase is Phase.STREAMING


def test_a_stream_that_opens_before_the_answer_to_register_counts():
    life, _ = play(lc.Started(), lc.Bound(), lc.StreamOpened())
    assert life.phase is Phase.REGISTER
    life, _ = step(life, lc.Registered())
    assert life.phase is Phase.STREAMING


def test_no_stream_in_time_registers_again_after_a_wait():
    life, actions = play(lc.Started(), lc.Bound(), lc.Registered(), lc.TimerFired())
    assert life.phase is Phase.BACKOFF
    assert "no stream" in life.reason
    assert actions == (lc.Wait(lc.PACE.backoff_s, jitter=True),)
    assert step(life, lc.TimerFired()) == (replace(life, phase=Phase.REGISTER), (lc.Register(),))


def test_a_late_stream_ends_the_back_off():
    life, _ = play(lc.Started(), lc.Bound(), lc.Registered(), lc.TimerFired(), lc.StreamOpened())
    assert life.phase is Phase.STREAMING


def test_refusal_backs_off_with_the_kubelets_words_and_growing_waits():
    life, _ = play(lc.Started(), lc.Bound())
    waits: list[float] = []
    for _ in range(12):
        actions: Any
        life, actions = step(life, lc.RegisterFailed("the kubelet said no"))
        assert life.reason == "the kubelet said no"
        waits.append(actions[0].seconds)
        life, _ = step(life, lc.TimerFired())
    assert waits == sorted(waits)
    assert waits[0] == lc.PACE.backoff_s
    assert waits[-1] == lc.PACE.backoff_max_s


def test_the_end_of_the_stream_means_register_again():
    life, actions = step(STREAMING, lc.StreamClosed())
    assert life.phase is Phase.BACKOFF
    assert life.retry is Phase.REGISTER
    assert actions


def test_the_end_of_one_of_two_streams_means_a_fresh_start():
    """It may have been the kubelet's; the other may be anybody's."""
    two, _ = step(STREAMING, lc.StreamOpened())
    life, actions = step(two, lc.StreamClosed())
    assert (life.phase, life.retry) == (Phase.BACKOFF, Phase.BIND)
    assert actions


def test_changed_options_mean_a_fresh_registration():
    life, actions = step(STREAMING, lc.OptionsChanged())
    assert (life.phase, life.reason, actions) == (Phase.BIND, "options changed", (lc.Bind(),))


def test_a_stream_that_dies_at_once_does_not_reset_the_back_off():
    life = STREAMING
    for attempt in range(1, 6):
        life, _ = step(life, lc.StreamClosed())
        assert life.attempt == attempt
        life, _ = play(lc.TimerFired(), lc.Registered(), lc.StreamOpened(), life=life)
    life, _ = step(life, lc.TimerFired())
    assert life.attempt == 0


def test_a_failed_bind_tries_to_bind_again():
    life, actions = play(lc.Started(), lc.BindFailed("read-only directory"))
    assert life.phase is Phase.BACKOFF
    assert "read-only directory" in life.reason
    assert actions
    life, actions = step(life, lc.TimerFired())
    assert (life.phase, actions) == (Phase.BIND, (lc.Bind(),))


def test_stop_closes_and_nothing_revives_it():
    life, actions = step(STREAMING, lc.Stop())
    assert actions == (lc.Close(),)
    assert step(life, lc.KubeletReplaced()) == (life, ())


def test_echoes_of_a_phase_that_is_over_change_nothing():
    assert step(STREAMING, lc.Registered()) == (STREAMING, ())
    assert step(STREAMING, lc.RegisterFailed("late")) == (STREAMING, ())
    assert step(STREAMING, lc.Bound()) == (STREAMING, ())


def test_a_kubelet_that_comes_back_to_a_fresh_socket_is_called_at_once():
    waiting, _ = play(lc.Started(), lc.Bound(), lc.RegisterFailed("not there"))
    assert waiting.phase is Phase.BACKOFF
    life, actions = step(waiting, lc.KubeletReplaced(own_intact=True))
    assert (life.phase, life.attempt, actions) == (Phase.REGISTER, 0, (lc.Register(),))


def test_with_a_stream_open_or_no_server_yet_even_a_fresh_socket_is_made_anew():
    """The open stream is the old kubelet's: its end must not be taken for the new one's."""
    for life in (STREAMING, play(lc.Started())[0]):
        after, actions = step(life, lc.KubeletReplaced(own_intact=True))
        assert (after.phase, actions) == (Phase.BIND, (lc.Bind(),))


EVENTS = st.sampled_from(
    [
        lc.Bound(), lc.BindFailed("x"), lc.Registered(), lc.RegisterFailed("x"), lc.StreamOpened(),
        lc.StreamClosed(), lc.TimerFired(), lc.OwnSocketGone(),
        lc.KubeletReplaced(), lc.KubeletReplaced(own_intact=True),
    ]
)  # fmt: skip


@given(st.lists(EVENTS, max_size=30), st.sampled_from([lc.OwnSocketGone(), lc.KubeletReplaced()]))
def test_a_lost_socket_in_any_phase_binds_anew(history, loss):
    life, _ = play(lc.Started(), *history)
    life, actions = step(life, loss)
    assert (life.phase, life.streams, actions) == (Phase.BIND, 0, (lc.Bind(),))


@given(st.lists(EVENTS, max_size=40))
def test_it_is_never_stuck(history):
    """In every reachable phase there is something under way that leads on: an action, a timer, or a live stream."""
    life, actions = play(lc.Started())
    pending = list(actions)
    for event in history:
        before = life
        life, actions = step(life, event)
        if life.phase is not before.phase or any(isinstance(a, (lc.Bind, lc.Register)) for a in actions):
            pending = list(actions)
        else:
            pending += actions
        match life.phase:
            case Phase.BIND:
                assert lc.Bind() in pending
            case Phase.REGISTER:
                assert lc.Register() in pending
            case Phase.AWAIT_STREAM | Phase.BACKOFF:
                assert any(isinstance(action, lc.Wait) for action in pending)
            case Phase.STREAMING:
                assert life.streams > 0


def test_a_superseded_endpoint_leaves_and_reacts_to_nothing_but_its_end_and_its_return():
    life, actions = step(STREAMING, lc.Superseded())
    assert (life.phase, life.streams, actions) == (Phase.SUPERSEDED, 1, (lc.Leave(),))
    for event in (lc.OwnSocketGone(), lc.KubeletReplaced(), lc.StreamClosed(), lc.TimerFired(), lc.OptionsChanged()):
        assert step(life, event) == (life, ())
    back, actions = step(life, lc.Resumed())
    assert (back.phase, back.signal, actions) == (Phase.BIND, lc.Signal.SUCCESSOR_ENDED, (lc.Bind(),))
    assert step(life, lc.Stop())[1] == (lc.Close(),)


def test_a_return_without_having_left_means_nothing():
    assert step(STREAMING, lc.Resumed()) == (STREAMING, ())
