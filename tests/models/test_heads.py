import pytest

from sparselabel.config import Query
from sparselabel.models.heads import make_head
from sparselabel.models.query2label import (
    QueryHead,
    SelfAttention,
    head_like,
)


@pytest.mark.parametrize(
    ("self_attention", "sees"),
    [("none", [False, False]), ("first", [True, False]), ("later", [False, True]), ("all", [True, True])],
)
def test_a_head_is_built_as_asked_for_and_found_again(
    self_attention: SelfAttention, sees: list[bool]
) -> None:
    head = make_head("query2label", 24, 3, query=Query(width=8, self_attention=self_attention))
    assert isinstance(head, QueryHead)
    again = head_like(head.state_dict(), 24, 3)
    for one in (head, again):
        assert [layer.has_self_attention for layer in one.decoder] == sees
        assert one.input_proj.weight.shape == (8, 24, 1, 1)
    again.load_state_dict(head.state_dict())
    assert again.query_embed.weight.shape == (3, 8)
