"""A level whose import fails within Semel, for the tests of the loader."""

import semel.no_such_module  # type: ignore[import-not-found]  # noqa: F401
