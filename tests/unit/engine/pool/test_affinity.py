"""Assignment of episodes: together by instance, even over servers, stable when one is lost."""

from __future__ import annotations

from collections import Counter

from swe_rollout.engine.pool.affinity import Affinity
from swe_rollout.types.episode import EpisodeId

URLS = [f"http://engine-{number}:30000" for number in range(5)]
SERVERS = dict.fromkeys(URLS, 0)


def episodes(instances: int, samples: int = 1) -> list[EpisodeId]:
    return [
        EpisodeId("job", f"task-{number}", sample)
        for number in range(instances)
        for sample in range(samples)
    ]


def test_samples_of_one_instance_share_a_server_while_it_has_room() -> None:
    affinity = Affinity()
    for episode in episodes(100):
        affinity.assign(episode, SERVERS)
    first = {affinity.url_of(episode) for episode in episodes(1)}
    more = {affinity.assign(EpisodeId("job", "task-0", sample), SERVERS) for sample in (1, 2)}
    assert more == first


def test_no_server_takes_much_more_than_its_share_whatever_the_instances() -> None:
    for assigned in (episodes(200), episodes(1, 200), episodes(8, 25)):
        affinity = Affinity()
        for episode in assigned:
            affinity.assign(episode, SERVERS)
        assert max(Counter(map(affinity.url_of, assigned)).values()) <= 1.25 * 201 / 5 + 1


def test_without_a_server_most_episodes_of_the_others_stay() -> None:
    assigned, affinity, smaller = episodes(60), Affinity(), Affinity()
    for episode in assigned:
        affinity.assign(episode, SERVERS)
        smaller.assign(episode, dict.fromkeys(URLS[1:], 0))
    stayed = [e for e in assigned if affinity.url_of(e) == smaller.url_of(e)]
    lost = [e for e in assigned if affinity.url_of(e) == URLS[0]]
    # The bound moves some; a hash modulo their number would move three of four.
    assert len(stayed) >= 2 / 3 * (len(assigned) - len(lost))


def test_calls_of_other_clients_count() -> None:
    affinity = Affinity()
    busy = {URLS[0]: 50, URLS[1]: 0}
    taken = [affinity.assign(episode, busy) for episode in episodes(10)]
    assert set(taken) == {URLS[1]}


def test_a_released_episode_has_no_server() -> None:
    affinity = Affinity()
    (episode,) = episodes(1)
    url = affinity.assign(episode, SERVERS)
    assert affinity.url_of(episode) == url
    affinity.release(episode)
    affinity.release(episode)
    assert affinity.url_of(episode) is None


def test_a_second_assignment_frees_the_first() -> None:
    affinity = Affinity()
    moved, others = episodes(1)[0], episodes(3, 2)[1:]
    affinity.assign(moved, {URLS[0]: 0})
    affinity.assign(moved, {URLS[1]: 0})
    assert {affinity.assign(other, {URLS[0]: 0}) for other in others} == {URLS[0]}
    assert affinity.url_of(moved) == URLS[1]


def test_episodes_that_are_never_released_are_dropped_oldest_first() -> None:
    affinity = Affinity(max_episodes=3)
    assigned = episodes(5)
    for episode in assigned:
        affinity.assign(episode, SERVERS)
    assert [affinity.url_of(episode) is None for episode in assigned] == [
        True,
        True,
        False,
        False,
        False,
    ]
