from waypost import ToolError, Toolkit, tool


class Bank(Toolkit):
    """Accounts that the transfer works on."""

    def __init__(self) -> None:
        self.accounts = {"checking": 100, "savings": 0}
        self._done: set[tuple[str, str]] = set()

    @tool(name="bank.withdraw")
    async def withdraw(self, account: str, amount: int, key: str) -> int:
        """Take money from an account; the same key takes it once."""
        if (account, key) not in self._done and self.accounts[account] < amount:
            raise ToolError(f"{account} holds less than {amount}.")
        return self._book(account, -amount, key)

    @tool(name="bank.deposit")
    async def deposit(self, account: str, amount: int, key: str) -> int:
        """Put money into an account; the same key puts it once."""
        return self._book(account, amount, key)

    def _book(self, account: str, amount: int, key: str) -> int:
        if (account, key) not in self._done:
            self._done.add((account, key))
            self.accounts[account] += amount
        return self.accounts[account]
