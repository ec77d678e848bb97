"""The pytest plugin: clusters as fixtures, and their state in the reports of failed tests.

    def test_it(tidelog_cluster): ...  # three brokers for this test
    @pytest.mark.tidelog(brokers=1, config={"num.partitions": 6})
    @pytest.mark.parametrize("tidelog_cluster", [1, 3], indirect=True)

`tidelog_cluster` and `kafka_bootstrap` have the scope of the ini option `tidelog_scope`; the
variants `_module` and `_session` have the scope of their names. `tidelog_cluster_factory` makes
further clusters. Shared clusters are reset when a test begins. Nothing but pytest is loaded before
a test requests a cluster. Each process of pytest-xdist has its own clusters, unless the ini option
`tidelog_workers` is `shared`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from tidelog.testing.cluster import Cluster
    from tidelog.testing.environment import Reservation
    from tidelog.testing.spec import ClusterSpec
    from tidelog.testing.workers import ClusterLender

Scope = Literal["function", "class", "module", "package", "session"]
Factory = Callable[..., "Cluster"]

_SCOPES: tuple[Scope, ...] = ("function", "class", "module", "package", "session")
_MARKER = "tidelog"
_MARKER_HELP = (
    "tidelog(brokers=3, config={}, log_dirs=1, store='embedded', port=None): the cluster that the"
    " fixture tidelog_cluster makes"
)
#: Beginnings of the names of fixtures that make clusters.
_FIXTURES = ("tidelog_cluster", "tidelog_http", "kafka_bootstrap")
_KIT = "tidelog.testing."
#: Modules whose frames are left out of a failure's traceback.
_HIDDEN = (_KIT, "tidelog.local.", "tidelog.runtime.blocking", "tidelog.client.")


class _Live:
    """The clusters of this process that are up."""

    def __init__(self) -> None:
        self.clusters: list[Cluster] = []
        #: The shared cluster of all workers, if this worker has borrowed it.
        self.borrowed: list[Cluster] = []

    def made(self, cluster: Cluster) -> None:
        self.clusters.append(cluster)

    def close(self, cluster: Cluster) -> None:
        if cluster in self.clusters and cluster not in self.borrowed:
            self.clusters.remove(cluster)
            cluster.close()


_LIVE = pytest.StashKey[_Live]()
_LENDER: pytest.StashKey[ClusterLender] = pytest.StashKey()
_RESERVATION: pytest.StashKey[Reservation] = pytest.StashKey()
_WORKERS = ("own", "shared")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini options."""
    parser.addini("tidelog_scope", "scope of tidelog_cluster", default="function")
    parser.addini("tidelog_brokers", "brokers of a cluster", default="")
    parser.addini("tidelog_log_dirs", "log directories of a broker", default="")
    parser.addini(
        "tidelog_store", "metadata store: embedded, zookeeper, or metadata.store", default=""
    )
    parser.addini("tidelog_port", "port of broker 1; the next brokers have the next", default="")
    parser.addini("tidelog_workers", "clusters of workers: own, shared", default="own")
    parser.addini("tidelog_environment", "variables with the address", type="linelist", default=[])
    parser.addini("tidelog_config", "key=value lines for every broker", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker `tidelog`, and check the ini option `tidelog_scope`."""
    config.addinivalue_line("markers", _MARKER_HELP)
    config.stash[_LIVE] = _Live()
    workers = config.getini("tidelog_workers")
    if workers not in _WORKERS:
        raise pytest.UsageError(f"tidelog_workers = {workers}: {' or '.join(_WORKERS)} expected")
    scope = config.getini("tidelog_scope")
    if scope not in _SCOPES:
        raise pytest.UsageError(f"tidelog_scope = {scope}: one of {', '.join(_SCOPES)} expected")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Set the variables of `tidelog_environment` before a conftest imports a program."""
    if names := early_config.getini("tidelog_environment"):
        _set_environment(early_config, names)
    yield


def _set_environment(config: pytest.Config, names: list[str]) -> None:
    from tidelog.testing.environment import Reservation, bootstrap_at, put
    from tidelog.testing.spec import SpecError

    if config.getini("tidelog_scope") != "session":
        raise pytest.UsageError(
            "tidelog_environment needs tidelog_scope = session: a program reads its settings once"
        )
    if _is_shared(config) and "PYTEST_XDIST_WORKER" in os.environ:
        return  # the controller process of pytest-xdist has set the variables
    try:
        spec = _ini_spec(config)
    except SpecError as error:
        raise pytest.UsageError(str(error)) from None
    if spec.port is not None:
        put(names, bootstrap_at(spec.port, spec.brokers))
        return
    reservation = config.stash[_RESERVATION] = Reservation(spec.brokers)
    put(names, reservation.bootstrap)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the shared cluster, and release the reserved ports."""
    if (lender := config.stash.get(_LENDER, None)) is not None:
        lender.close()
    if (reservation := config.stash.get(_RESERVATION, None)) is not None:
        reservation.close()


# workers of pytest-xdist


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Lend workers the shared cluster (a hook of pytest-xdist, in its controller process)."""
    config: pytest.Config = node.config
    if not _is_shared(config):
        return
    if _LENDER not in config.stash:
        from tidelog.testing.cluster import Cluster
        from tidelog.testing.workers import ClusterLender

        config.stash[_LENDER] = ClusterLender(
            lambda directory: Cluster(directory, **asdict(_reserved(config, _ini_spec(config))))
        )
    node.workerinput["tidelog_lender"] = config.stash[_LENDER].workerinput


def _is_shared(config: pytest.Config) -> bool:
    return bool(config.getini("tidelog_workers") == "shared")


def _lender_of(config: pytest.Config) -> Any:
    """Return the address at which this worker borrows the shared cluster; None without one."""
    return getattr(config, "workerinput", {}).get("tidelog_lender")


def _reserved(config: pytest.Config, spec: ClusterSpec) -> ClusterSpec:
    """Return the spec with the port that `tidelog_environment` has reserved."""
    reservation = config.stash.get(_RESERVATION, None)
    return spec if reservation is None else replace(spec, port=reservation.first_port)


def _chosen_scope(fixture_name: str, config: pytest.Config) -> Scope:
    scope: Scope = config.getini("tidelog_scope")
    return scope


# fixtures


@pytest.fixture(scope="session")
def tidelog_cluster_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Factory]:
    """Return a factory of clusters: `tidelog_cluster_factory(brokers=1, config={...})`.

    Ini options are the defaults of missing arguments. Clusters live until the session ends, or
    until their `close`.
    """
    from tidelog.testing.cluster import Cluster

    live = request.config.stash[_LIVE]
    made = []

    def make(**wanted: Any) -> Cluster:
        spec = _checked(lambda: _ini_spec(request.config).with_("tidelog_cluster_factory", wanted))
        directory = tmp_path_factory.mktemp("tidelog")
        cluster = Cluster(str(directory), **asdict(spec))
        live.made(cluster)
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        live.close(cluster)


def _serve(request: pytest.FixtureRequest, factory: Factory) -> Generator[Cluster, None, None]:
    """Yield a cluster as markers, parameter and ini options request it."""
    spec = _wanted(request)
    lender = _lender_of(request.config)
    if request.scope == "session" and lender is not None and spec == _ini_spec(request.config):
        cluster = _borrowed(request, lender, spec)
    else:
        if request.fixturename == "tidelog_cluster":
            spec = _reserved(request.config, spec)
        cluster = factory(**asdict(spec))
    yield cluster
    request.config.stash[_LIVE].close(cluster)


def _borrowed(request: pytest.FixtureRequest, lender: Any, spec: ClusterSpec) -> Cluster:
    from tidelog.testing.workers import borrowed

    live = request.config.stash[_LIVE]
    if not live.borrowed:
        base: Path = request.getfixturevalue("tmp_path_factory").getbasetemp().parent
        name: str = request.config.workerinput["workerid"]  # type: ignore[attr-defined]  # xdist's
        number = int(name.removeprefix("gw"))
        live.borrowed = [borrowed(lender, str(base / "tidelog-shared"), spec, number)]
        live.made(live.borrowed[0])
    return live.borrowed[0]


@pytest.fixture(scope=_chosen_scope)
def tidelog_cluster(
    request: pytest.FixtureRequest, tidelog_cluster_factory: Factory
) -> Generator[Cluster, None, None]:
    """A cluster of real brokers (`tidelog.testing.Cluster`).

    The cluster lives for one test unless `tidelog_scope` is another scope.
    """
    yield from _serve(request, tidelog_cluster_factory)


@pytest.fixture(scope="module")
def tidelog_cluster_module(
    request: pytest.FixtureRequest, tidelog_cluster_factory: Factory
) -> Generator[Cluster, None, None]:
    """A cluster that the tests of a module share."""
    yield from _serve(request, tidelog_cluster_factory)


@pytest.fixture(scope="session")
def tidelog_cluster_session(
    request: pytest.FixtureRequest, tidelog_cluster_factory: Factory
) -> Generator[Cluster, None, None]:
    """A cluster that all tests of a session share; with pytest-xdist see `tidelog_workers`."""
    yield from _serve(request, tidelog_cluster_factory)


@pytest.fixture(scope=_chosen_scope)
def kafka_bootstrap(tidelog_cluster: Cluster) -> str:
    """`host:port,...` of `tidelog_cluster`, for a client's `bootstrap.servers`."""
    return tidelog_cluster.bootstrap


@pytest.fixture(scope=_chosen_scope)
def tidelog_http(tidelog_cluster: Cluster) -> Iterator[str]:
    """The address of the HTTP API of `tidelog_cluster`, for programs in other languages."""
    from tidelog.testing.http_server import FaultServer

    with FaultServer(tidelog_cluster) as server:
        yield server.url


# request


def _checked(make: Callable[[], ClusterSpec]) -> ClusterSpec:
    """Fail a test whose request for a cluster is invalid, with one line and no traceback."""
    from tidelog.testing.spec import SpecError

    try:
        return make()
    except SpecError as error:
        pytest.fail(str(error), pytrace=False)


def _ini_spec(config: pytest.Config) -> ClusterSpec:
    from tidelog.testing.spec import ClusterSpec, SpecError, config_lines

    wanted: dict[str, Any] = {"config": config_lines("tidelog_config", _ini(config, "config"))}
    if store := _ini(config, "store"):
        wanted["store"] = store
    for name in ("brokers", "log_dirs", "port"):
        if number := _ini(config, name):
            if not number.isdecimal():
                raise SpecError(f"tidelog_{name} = {number}: an integer of at least 1 expected")
            wanted[name] = int(number)
    return ClusterSpec().with_("ini options", wanted)


def _ini(config: pytest.Config, name: str) -> Any:
    return config.getini(f"tidelog_{name}")


def _marked(node: Any, spec: ClusterSpec) -> ClusterSpec:
    """Return the spec with all markers applied, from the module's marker to the function's."""
    from tidelog.testing.spec import SpecError

    for marker in reversed(list(node.iter_markers(_MARKER))):
        if marker.args:
            raise SpecError(f"pytest.mark.tidelog{marker.args}: keywords expected: {_MARKER_HELP}")
        spec = spec.with_("pytest.mark.tidelog", marker.kwargs)
    return spec


def _wanted(request: pytest.FixtureRequest) -> ClusterSpec:
    def make() -> ClusterSpec:
        spec = _marked(request.node, _ini_spec(request.config))
        if hasattr(request, "param"):
            spec = spec.with_parameter(f"a parameter of {request.fixturename}", request.param)
        return spec

    return _checked(make)


# around every test


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Reset shared clusters before every test that may use them.

    A marker that requests a cluster unlike the shared cluster is an error.
    """
    live = item.config.stash[_LIVE]
    if _uses_clusters(item):
        for cluster in live.clusters:
            cluster.reset()
            cluster.mark_logs()
    yield
    _check_markers(item)


def _check_markers(item: pytest.Item) -> None:
    """Fail if a marker asks for a cluster that differs from the shared cluster of the test."""
    markers = list(item.iter_markers(_MARKER))
    found = getattr(item, "funcargs", {})
    scope: Scope = item.config.getini("tidelog_scope")
    if not markers or ("tidelog_cluster" in found and scope == "function"):
        return  # the marker sets up this test's own cluster
    scopes = {
        "tidelog_cluster": f"tidelog_scope = {scope}",
        "tidelog_cluster_module": "by its module",
        "tidelog_cluster_session": "by all tests",
    }
    for name, shared_by in scopes.items():
        cluster: Cluster | None = found.get(name)
        if cluster is None or _as_marked(item, cluster.spec) == cluster.spec:
            continue
        pytest.fail(
            f"pytest.mark.tidelog on {item.name} has no effect: its cluster, {name}, is shared"
            f" ({shared_by}); use tidelog_cluster_factory, or a marker of the module",
            pytrace=False,
        )


def _as_marked(item: pytest.Item, spec: ClusterSpec) -> ClusterSpec:
    return _checked(lambda: _marked(item, spec))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a passing test that built a fault without an action (`drop`, `delay`, ...)."""
    yield
    if _uses_clusters(item):
        for cluster in item.config.stash[_LIVE].clusters:
            if problem := cluster.unfinished_fault():
                pytest.fail(problem, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failed test a section for each cluster that it may have used."""
    if call.excinfo is not None:
        _hide_frames()
    report = yield
    if report.failed and call.when != "teardown" and _uses_clusters(item):
        for cluster in item.config.stash[_LIVE].clusters:
            report.sections.append((f"tidelog cluster {cluster.bootstrap}", _described(cluster)))
    return report


def _hide_frames() -> None:
    """Let pytest leave frames of tidelog out of tracebacks (`__tracebackhide__`)."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith(_HIDDEN):
            module.__dict__.setdefault("__tracebackhide__", _is_of_the_test)


def _is_of_the_test(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    """Return whether tidelog reported an error to the test, or a function of the test raised it.

    Frames of tidelog do not explain such an error, so they are hidden. If tidelog's own code fails
    unexpectedly, all frames are shown.
    """
    from tidelog.core.errors import TidelogError
    from tidelog.testing.waiting import WaitTimeout

    last = str(excinfo.traceback[-1].frame.f_globals.get("__name__", ""))
    if isinstance(excinfo.value, TidelogError | WaitTimeout):
        return True
    if isinstance(excinfo.value, ValueError | TypeError) and last.startswith(_KIT):
        return True
    return last.partition(".")[0] not in (*sys.stdlib_module_names, "tidelog")


def _described(cluster: Cluster) -> str:
    try:
        return cluster.report()
    except Exception as error:  # an error here must not hide the test's failure
        return f"the cluster cannot be described: {error!r}"


def _uses_clusters(item: pytest.Item) -> bool:
    names = getattr(item, "fixturenames", ())
    return any(name.startswith(_FIXTURES) for name in names)
