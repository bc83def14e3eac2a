"""A test in a browser that freezes runs once more, in another one."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that has a browser; what follows it begins with an open page of its own, or with a new one."""
    browser = pyfuncitem.funcargs.get("browser")
    if browser is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    try:
        pyfuncitem.obj(**arguments)
    except browser.FROZEN:
        browser.renew()
        pyfuncitem.obj(**arguments)
    return True
