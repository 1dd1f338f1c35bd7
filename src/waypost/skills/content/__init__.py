"""The registry of markdown skills and prompts that workers, folders and people publish, wherever it runs.

Skills (`documents`) and prompts (`prompts`) are kept on a shelf, in the store (`store_shelf`) or in the state of an
engine (`remote_shelf`), and shown beside skills that stand elsewhere (`borrowing_shelf`). `functions` offers them to
workers as thirteen functions; `content` puts everything together and keeps the same documents as resources and prompts
of the hub (`capabilities`). A hub that leaves the registry to a worker shows what that one has (`delegating`).
"""
