"""Names in state dicts."""

from ppo.system.state_dict import add_prefix, select_prefix


def test_a_part_gets_back_what_it_gave_and_nothing_else() -> None:
    state = {**add_prefix("model", {"a.weight": 1, "b": 2}), "models.c": 3, "model": 4}
    assert state == {"model.a.weight": 1, "model.b": 2, "models.c": 3, "model": 4}
    assert select_prefix("model", state) == {"a.weight": 1, "b": 2}
