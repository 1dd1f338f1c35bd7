import sqlite3

from waypost import Hub, Toolkit, tool
from waypost.runtime.component import Component
from waypost.runtime.core import Core


class Orders(Toolkit):
    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    @tool(name="orders.add", description="Add an order")
    async def add(self, title: str) -> str:
        with self._database:
            self._database.execute("INSERT INTO orders VALUES (?)", (title,))
        return f"Added {title}."

    @tool(name="orders.list", description="List all orders, oldest first")
    async def list_all(self) -> list[str]:
        return [title for (title,) in self._database.execute("SELECT title FROM orders")]


class Table(Component):
    """Offers the table of orders of a SQLite database as tools."""

    name = "orders"

    def __init__(self, path: str) -> None:
        self._path = path

    async def start(self, core: Core) -> None:
        self._database = sqlite3.connect(self._path)
        self._database.execute("CREATE TABLE IF NOT EXISTS orders (title TEXT)")
        self._registry = core.registry
        self._tools = Orders(self._database).capabilities()
        self._registry.add(self._tools)

    async def stop(self) -> None:
        self._registry.remove(self._tools)
        self._database.close()


hub = Hub("shop", version="1.0.0")
hub.add(Table(":memory:"))
