import pytest

from waypost.capabilities.schemas.forms import TYPES, checked, fail
from waypost.errors import DefinitionError


@pytest.mark.parametrize("kind", TYPES)
def test_a_bare_type_name_is_short_for_a_map_of_options(kind: str) -> None:
    assert checked(("a",), kind) == checked(("a",), {"type": kind}) == {"type": kind}


def test_items_are_neither_required_nor_have_defaults() -> None:
    with pytest.raises(DefinitionError, match=r"field a\[\]: unknown option 'required'"):
        checked(("a", None), {"type": "string", "required": True})


def test_a_refusal_names_the_field_or_the_whole_spec() -> None:
    with pytest.raises(DefinitionError, match=r"^field rows\[\]\.id: no$"):
        fail(("rows", None, "id"), "no")
    with pytest.raises(DefinitionError, match=r"^field spec: no$"):
        fail((), "no")
