"""The workflow engine: start, get, submit, explain and cancel instances.

Every way to a workflow ends here: MCP tools (`tools`), the HTTP API, and steps of other workflows. The engine checks
a request with `transitions`, runs it with `runner` and answers with `answers`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

import msgspec

from waypost.capabilities.context import Caller
from waypost.capabilities.principals import Principal
from waypost.errors import ExecutorFailed, PolicyDenied, StaleVersion, WorkflowRefused, shorten
from waypost.policy.audit import AuditLog
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord
from waypost.workflows import transitions, views
from waypost.workflows.approvals import Approvals
from waypost.workflows.audit import Recorder
from waypost.workflows.definitions import (
    CANONICAL,
    PROXY,
    RESUME,
    START,
    Definition,
    Library,
    digest,
    tool_name,
    with_defaults,
)
from waypost.workflows.executors.kind import ExecutorContext
from waypost.workflows.instance import Instance, InstanceCache, Parent, identify_process
from waypost.workflows.maintenance import Recovery
from waypost.workflows.runner import STOP_TIMEOUT_S, Chains, Children, Ending, MoveResult, Moves, Outcome, Request
from waypost.workflows.views import Answer, Dependencies, Rights, WorkflowView

_log: Final = logging.getLogger(__name__)
_MAX_SUBMIT_ATTEMPTS: Final = 4

Data = dict[str, Any]


class Proxy(Protocol):
    """The built-in workflow that wraps the call of a single capability."""

    async def start(self, given: Data, caller: Caller) -> Answer:
        """Start an instance for the capability that `given` names."""

    def explain(self, transition: str, caller: Caller) -> Answer:
        """Explain the workflow, or the call of the capability that `transition` names."""


class Engine:
    """Starts, shows, moves, explains and cancels the instances of a hub."""

    def __init__(
        self,
        store: Store,
        surroundings: ExecutorContext,
        *,
        audit: AuditLog | None = None,
        rights: Rights,
    ) -> None:
        self._store = store
        self.rights = rights
        self.recorder = Recorder(audit)
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self.draining = False
        self.proxy: Proxy | None = None
        """The built-in workflow for single capabilities; set by the gateway."""
        self.leads: tuple[Data, ...] = ()
        """Links for answers that have no instance."""
        surroundings = replace(surroundings, run_child=self._run_child)
        self.library = Library(store, surroundings)
        self.lookup = DefinitionLookup(self.library, rights)
        self.cache = InstanceCache(store, self.library)
        self.moves = Moves(store, self.cache, self.recorder, identify_process(), self.spawn, self._ended)
        self.ending = Ending(self.cache, self.moves, self._tasks)
        self.children = Children(self.cache, self.moves, self._begin, self.ending.end)
        self.chains = Chains(self.moves, self.children, self.cache)
        self.approvals = Approvals(store, self.cache, self.moves, self.chains, self.recorder)
        self._needs = Dependencies(rights, surroundings.function)
        self.recovery = Recovery(
            self.cache, self.moves, self.chains, self.approvals, self.spawn, self.ending.end, self._needs.are_met
        )

    async def _run_child(self, definition: str, given: Data, key: str, caller: Caller, within: float | None) -> Data:
        return await self.children.run(definition, given, key, caller, within)

    def spawn(self, work: Coroutine[Any, Any, Any], workflow_id: str = "") -> asyncio.Task[Any]:
        """Run work as a task of the engine, which continues when its caller disconnects."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = workflow_id
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("workflow task failed: %s: %s", type(error).__name__, error)

    async def stop(self, patience: float = STOP_TIMEOUT_S) -> None:
        """Refuse new instances, wait for running work, then cancel the rest; the next start recovers it."""
        self.draining = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, instance: Instance) -> None:
        heard = self.children.ended(instance)
        if instance.body.parent is not None and not heard:
            self.spawn(self.chains.wake(instance.body.parent.id))

    async def start(self, definition_id: str, given: Data, caller: Caller) -> Answer:
        """Start an instance and follow its chain until a caller has to decide."""
        if self.proxy is not None and definition_id in ("", PROXY):
            return await self.proxy.start(given, caller)
        try:
            outcome = await self.begin(definition_id, given, caller)
        except WorkflowRefused as error:
            return views.no_instance_error(error, *self.leads, definitionId=definition_id)
        return views.answer_outcome(outcome.instance, caller.principal, outcome.error, outcome.chain)

    async def begin(
        self, definition_id: str, given: Data, caller: Caller, *, authorised: bool = False, **more: Any
    ) -> Outcome:
        """Start an instance by a name of its definition; raises `WorkflowRefused`."""
        definition = self._startable(definition_id, caller, authorised, inside=bool(more.get("depth")))
        return await self.begin_by(definition, given, caller, **more)

    async def begin_by(self, definition: Definition, given: Data, caller: Caller, **more: Any) -> Outcome:
        """Start an instance of a definition; raises `WorkflowRefused` if the input does not match its schema."""
        filled = with_defaults(definition.input_schema, given)
        if definition.schema is not None and not definition.schema.is_valid(filled):
            problems = definition.schema.problems(filled)
            raise WorkflowRefused(
                f"The input of {definition.id} does not fit: {'; '.join(problems)}",
                "INPUT_SCHEMA_VIOLATION",
                problems=problems,
            )
        await self.library.pin(definition)
        instance, due_at = transitions.create_instance(definition, filled, caller.principal, **more)
        entry: Data = {"transition": START, "from": None, "to": instance.state.name, "by": caller.principal.id}
        entry |= {"argumentsDigest": digest(filled), "delta": instance.body.context}
        self.chains.busy.add(instance.id)
        try:
            await self._store.instances.start(instance.to_record(due_at), time.time(), entry)
            self.cache.keep(instance)
            self.recorder.record_start(instance, caller)
            if instance.is_over:
                self._ended(instance)
            return await self.chains.follow(MoveResult(instance), caller)
        finally:
            self.chains.busy.discard(instance.id)

    def _startable(self, definition_id: str, caller: Caller, authorised: bool, *, inside: bool) -> Definition:
        if self.draining and not inside:  # running moves may need a child to finish
            raise WorkflowRefused("The hub is about to stop; start it again later.", "DRAINING")
        definition = self.lookup.find(definition_id, None if authorised or inside else caller)
        if not authorised:
            self.check_policy(tool_name(definition.id), caller, begins=True)
        if not definition.model.enabled:
            raise WorkflowRefused(f"Workflow {definition.id} is disabled", "WORKFLOW_DISABLED")
        return definition

    def check_policy(self, name: str, caller: Caller, *, begins: bool = False) -> None:
        """Raise if the policy denies a tool; with `begins` the denial is recorded here, as there is no instance yet."""
        try:
            self.rights.check(name, caller)
        except PolicyDenied as error:
            if begins:
                self.recorder.record_denial(name, caller, error)
            raise WorkflowRefused(error.message, "POLICY_DENIED") from error

    async def _begin(
        self, definition: str, given: Data, caller: Caller, workflow_id: str, parent: Parent | None, depth: int
    ) -> Instance:
        """Start a child, or return the one that was started under this id before a crash."""
        with suppress(StaleVersion):
            return (
                await self.begin(definition, given, caller, workflow_id=workflow_id, parent=parent, depth=depth)
            ).instance
        instance = await self.cache.get(workflow_id)
        assert instance is not None
        return instance

    async def get(self, workflow_id: str, caller: Caller) -> Answer:
        """Describe an instance, after applying what is due."""
        try:
            instance = await self.get_visible(workflow_id, caller.principal)
        except WorkflowRefused as error:
            return views.no_instance_error(error, *self.leads, workflowId=workflow_id)
        outcome = await self.recovery.apply_due(instance)
        return Answer(views.describe_instance(outcome.instance, caller.principal, outcome.chain))

    async def get_visible(self, workflow_id: str, principal: Principal, version: int | None = None) -> Instance:
        """An instance that the principal may see; any other raises the same error as an unknown id."""
        if version is None:
            instance = await self.cache.get(workflow_id)
        else:
            instance = await self.cache.at(workflow_id, version)
        if instance is None or not instance.is_open_to(principal):
            raise _unknown_instance(workflow_id)
        return instance

    async def submit(
        self,
        workflow_id: str,
        expected: int,
        transition: str,
        arguments: Data,
        caller: Caller,
        *,
        request_id: str = "",
        resolve: str = "",
        output: Any = None,
    ) -> Answer:
        """Take a transition, or resolve an unknown outcome.

        A repeated `request_id` returns the answer of the first submit. The instance may come from memory: a stale copy
        fails at the reservation or the commit, and the submit is tried again with a fresh one.
        """
        principal = caller.principal
        asked = [expected, transition, arguments, resolve, output]
        request = Request(request_id, digest(asked)) if request_id else None
        try:
            if request is not None:
                transitions.check_request_id(request.id)
            for _ in range(_MAX_SUBMIT_ATTEMPTS):
                instance = await self.get_visible(workflow_id, principal, expected)
                if instance.pending_move is not None or instance.body.deadline:
                    instance = (await self.recovery.apply_due(instance)).instance
                if request is not None and (replayed := await self._replayed(instance, request, principal)):
                    return replayed
                try:
                    if resolve:
                        outcome = await self._resolve(instance, expected, transition, resolve, output, caller, request)
                    else:
                        outcome = await self._take(instance, expected, transition, arguments, caller, request)
                except StaleVersion:
                    self.cache.drop(workflow_id)
                    continue
                return views.answer_outcome(outcome.instance, principal, outcome.error, outcome.chain)
        except WorkflowRefused as error:
            return await self._refused(error, workflow_id, expected, transition, caller)
        stale = WorkflowRefused(f"Version {expected} is being moved on by others.", "STALE_WORKFLOW_VERSION")
        return await self._refused(stale, workflow_id, expected, transition, caller)

    async def _take(
        self,
        instance: Instance,
        expected: int,
        transition: str,
        arguments: Data,
        caller: Caller,
        request: Request | None,
    ) -> Outcome:
        transitions.check_version(instance, expected)
        if transition == RESUME:
            if instance.body.halted is None:
                raise WorkflowRefused("There is nothing to resume.", "INVALID_TRANSITION")
            self.check_policy(tool_name(instance.definition.id), caller)
            return await self._follow_chain(MoveResult(transitions.clear_halt(instance)), caller, request)
        transitions.check_entered(instance)
        plan = transitions.get_transition(instance, transition)
        transitions.check_actor(plan, caller.principal)
        self.check_policy(tool_name(instance.definition.id), caller)
        arguments = transitions.fill_arguments(plan, arguments)
        transitions.check_guards(instance, plan, caller.principal, arguments)
        taken = await self.chains.take(instance, transition, arguments, caller, request=request)
        if not taken.instance.body.pending:
            return Outcome(taken.instance, [], taken.error)
        return await self._follow_chain(taken, caller, request, answered=taken.instance)

    async def _follow_chain(
        self, taken: MoveResult, caller: Caller, request: Request | None, answered: Instance | None = None
    ) -> Outcome:
        """Follow the chain, then store its result as the answer of the request, unless the move already stored it."""
        outcome = await self.chains.follow(taken, caller)
        if request is not None and outcome.instance is not answered:
            answer = views.answer_outcome(outcome.instance, caller.principal, outcome.error, outcome.chain)
            await self._store.requests.replace(RequestRecord(outcome.instance.id, request.id, request.digest, answer))
        return outcome

    async def _resolve(
        self,
        instance: Instance,
        expected: int,
        transition: str,
        how: str,
        output: Any,
        caller: Caller,
        request: Request | None,
    ) -> Outcome:
        if instance.version != expected:
            raise transitions.stale_version_error(instance, expected)
        pending_move = instance.pending_move
        if pending_move is None or pending_move.kind != "unknown" or pending_move.move != transition:
            which = f" of {shorten(transition)}" if transition else ""
            raise WorkflowRefused(f"There is no unknown outcome{which} to resolve.", "INVALID_TRANSITION")
        if how == "retry":
            self.check_policy(tool_name(instance.definition.id), caller)
            executing = msgspec.structs.replace(pending_move, kind="executing", holder=self.moves.holder)
            taken = await self.moves.run(await self.moves.reserve(instance, executing), caller)
        elif how == "succeeded":
            taken = await self.moves.finish(
                instance, pending_move, {} if output is None else output, resolvedBy=caller.principal.id
            )
        elif how == "failed":
            error = ExecutorFailed(f"{caller.principal.id} says that it was not done.")
            taken = MoveResult((await self.moves.fail(instance, pending_move, error)).instance)
        else:
            raise WorkflowRefused(f"An outcome is resolved as retry, succeeded or failed, not {how!r}.")
        self.recorder.record_action(instance, caller, "outcome.resolved", f"{pending_move.move}: {how}")
        return await self._follow_chain(taken, caller, request)

    async def _replayed(self, instance: Instance, request: Request, principal: Principal) -> Answer | None:
        pending_move = instance.pending_move
        if pending_move is not None and pending_move.request == request.id:
            _check_same_request(pending_move.request_digest, request)
            if pending_move.kind == "unknown":
                transitions.check_version(instance, instance.version)
            return Answer(views.describe_instance(instance, principal))
        found = await self._store.requests.get(instance.id, request.id)
        if found is None:
            return None
        _check_same_request(found.digest, request)
        return msgspec.convert(found.answer, Answer)

    async def _refused(
        self, error: WorkflowRefused, workflow_id: str, expected: int, transition: str, caller: Caller
    ) -> Answer:
        instance = await self.cache.get(workflow_id)
        transition = shorten(transition)
        if instance is None or not instance.is_open_to(caller.principal):
            return views.no_instance_error(_unknown_instance(workflow_id), *self.leads, workflowId=workflow_id)
        # The refusal may rest on a stale copy from memory: then the version is the reason to report.
        if instance.version != expected and error.code != "REQUEST_ID_REUSED":
            error = transitions.stale_version_error(instance, expected)
        self.recorder.record_refusal(instance, caller, transition, error)
        return views.refusal_answer(
            instance, caller.principal, error.code, error.message, attemptedTransition=transition, **error.details
        )

    async def explain(self, definition_id: str, transition: str, workflow_id: str, caller: Caller) -> Answer:
        """Explain a definition or a transition, and which moves an instance allows now."""
        if self.proxy is not None and definition_id == PROXY and not workflow_id:
            return self.proxy.explain(transition, caller)
        about = {"definitionId": definition_id} | ({"workflowId": workflow_id} if workflow_id else {})
        view, allowed = self.view(caller), Data()
        try:
            if workflow_id:
                instance = await self.get_visible(workflow_id, caller.principal)
                views.check_instance(instance, self.lookup.id_of(definition_id))
                definition, allowed = instance.definition, view.allowed(instance)
                if not view.finds(definition):
                    return Answer({"definitionId": definition.id, **allowed})
            else:
                definition = self.lookup.find(definition_id, caller)
                view.check(definition)
            whole = view.transition(definition, transition) if transition else view.definition(definition)
            return Answer({**whole, **allowed})
        except WorkflowRefused as error:
            return views.no_instance_error(error, *self.leads, **about)

    def view(self, caller: Caller) -> WorkflowView:
        """The workflows as a caller may see them."""
        return WorkflowView(self.rights, caller, self._needs)

    async def cancel(self, workflow_id: str, caller: Caller, reason: str = "") -> Answer:
        """Cancel an instance."""
        try:
            instance = await self.get_visible(workflow_id, caller.principal)
        except WorkflowRefused as error:
            return views.no_instance_error(error, *self.leads, workflowId=workflow_id)
        if instance.is_over:
            return views.refusal_answer(
                instance, caller.principal, "INVALID_TRANSITION", f"{workflow_id} has ended already."
            )
        after = await self.ending.end(instance, reason, caller.principal.id)
        return Answer(views.describe_instance(after, caller.principal))


def _unknown_instance(workflow_id: str) -> WorkflowRefused:
    return WorkflowRefused(f"Unknown workflow instance {shorten(workflow_id)!r}.", "UNKNOWN_WORKFLOW")


def _check_same_request(known: str, request: Request) -> None:
    if known != request.digest:
        raise WorkflowRefused(
            f"The request id {request.id!r} was used for another call; take a new one.", "REQUEST_ID_REUSED"
        )


class DefinitionLookup:
    """Finds definitions by id, tool name or portable name."""

    def __init__(self, library: Library, rights: Rights) -> None:
        self._library = library
        self._rights = rights

    def id_of(self, name: str) -> str:
        """The definition id for an id, a tool name or a portable tool name."""
        if self._library.get(name) is not None:
            return name
        short = name.removeprefix(CANONICAL)
        if self._library.get(short) is not None:
            return short
        return self._rights.canonical(name).removeprefix(CANONICAL)

    def find(self, name: str, caller: Caller | None = None) -> Definition:
        """A definition by one of its names; one that is hidden from the caller counts as unknown."""
        found = self._library.get(self.id_of(name))
        if found is not None and (caller is None or not self._rights.is_hidden(tool_name(found.id), caller)):
            return found
        similar = self._library.find_nearest(name.removeprefix(CANONICAL))
        near = [one for one in similar if caller is None or self._rights.finds(tool_name(one), caller)]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise WorkflowRefused(f"Unknown workflow {shorten(name)!r}.{hint}", "UNKNOWN_ID", nearest=near)
