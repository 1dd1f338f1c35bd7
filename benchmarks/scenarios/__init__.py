"""One module a scenario, each with `run(settings) -> Report`; a new module is found by being here."""
