"""An untested version of a library gives one warning."""

import warnings

import numpy as np
import pytest

from framestow.errors import MissingExtraError, UntestedVersionWarning
from framestow.integrations import tested_versions
from framestow.integrations.tested_versions import warn_of_untested_version


@pytest.fixture(autouse=True)
def nobody_was_told(monkeypatch):
    monkeypatch.setattr(tested_versions, "_warned", set())


@pytest.mark.parametrize(("oldest", "newest"), [("999.0", "999.1"), ("0.1", "0.9")])
def test_an_untested_version_warns_once(oldest, newest):
    with pytest.warns(UntestedVersionWarning, match=rf"numpy is {np.__version__}: .* {oldest} to {newest}"):
        warn_of_untested_version("numpy", oldest=oldest, newest=newest)
    warn_of_untested_version("numpy", oldest=oldest, newest=newest)  # a second warning would be an error


def test_a_tested_version_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_untested_version("numpy", oldest="1.24", newest=np.__version__.partition(".")[0])


def test_a_missing_library_is_named_with_its_install_command():
    with pytest.raises(MissingExtraError, match=r"no-such-library is not installed.*framestow\[no-such-library\]"):
        warn_of_untested_version("no-such-library", newest="2")
