def f() -> None:
    """No tool."""
