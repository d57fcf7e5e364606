"""Labels that clients choose are bounded in number and length."""

from receiver.metrics.labels import OTHER, SoftwareLabels


def test_names_beyond_the_bound_share_a_label() -> None:
    labels = SoftwareLabels(max_names=2)
    assert [labels.name(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]


def test_real_clients_have_their_place_whatever_came_before() -> None:
    labels = SoftwareLabels(max_names=0)
    assert labels.name("made-up") == OTHER
    assert labels.name("apache-kafka-java") == "apache-kafka-java"
    assert labels.name("unknown") == "unknown"


def test_versions_beyond_the_bound_share_a_label() -> None:
    labels = SoftwareLabels(max_names=1, max_versions=2)
    assert labels.name_and_version("a", "1") == ("a", "1")
    assert labels.name_and_version("a", "2") == ("a", "2")
    assert labels.name_and_version("a", "3") == ("a", OTHER)
    assert labels.name_and_version("a", "1") == ("a", "1")
    assert labels.name_and_version("b", "1") == (OTHER, OTHER)


def test_a_long_text_is_no_label() -> None:
    labels = SoftwareLabels()
    assert labels.name("x" * 101) == OTHER
    assert labels.name_and_version("a", "1" * 101) == ("a", OTHER)
    assert labels.name("x" * 100) == "x" * 100
