"""The table of all pages, in the order of the navigation; a page is one file here and its template."""

from typing import Final

from waypost.console.page import Page
from waypost.console.pages import (
    approvals,
    audit,
    catalog,
    connect,
    documents,
    instance,
    instances,
    keys,
    overview,
    policies,
    requests,
    sessions,
    settings,
    skills,
    upstreams,
    workers,
    workflows,
)

PAGES: Final[tuple[Page, ...]] = (
    overview.PAGE,
    approvals.PAGE,
    approvals.ONE,
    instances.PAGE,
    instance.PAGE,
    workflows.LIST,
    workflows.ONE,
    catalog.LIST,
    catalog.ONE,
    upstreams.PAGE,
    documents.PAGE,
    skills.PAGE,
    workers.PAGE,
    policies.PAGE,
    keys.PAGE,
    audit.PAGE,
    sessions.PAGE,
    requests.PAGE,
    settings.PAGE,
    connect.PAGE,
)
