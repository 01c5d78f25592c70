"""Nothing that a cell leaves in the workspace weakens the next kernel or keeps it from starting."""

from __future__ import annotations

import pytest

from .conftest import UIDS, Stages


@pytest.mark.parametrize("uid", UIDS)
def test_hidden_names_of_any_kind_and_number_do_not_lower_the_level(stages: Stages, uid: int) -> None:
    """A workspace that is the home, whose dot-entries are to be hidden."""
    assert stages(uid, "auto", "home").started["level"] == stages(uid, "full", "usual").started["level"]
