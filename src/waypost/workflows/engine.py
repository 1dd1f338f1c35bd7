"""The workflow engine: start, get, submit, explain and cancel instances.

Every way to a workflow ends here: MCP tools (`tools`), the HTTP API, and steps of other workflows. The engine checks
a request with `transitions`, runs it with `runner` and answers with `views`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

import msgspec

from waypost.capabilities.context import Caller
from waypost.capabilities.principals import Principal
from waypost.errors import ExecutorFailed, StaleVersion, WorkflowRefused, shorten
from waypost.policy.audit import AuditLog
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord
from waypost.workflows import transitions, views
from waypost.workflows.approvals import Approvals
from waypost.workflows.definitions import CANONICAL, PROXY, RESUME, START, Definition, Library, digest, with_defaults
from waypost.workflows.executors.kind import ExecutorContext
from waypost.workflows.instance import Instance, InstanceCache, Parent
from waypost.workflows.maintenance import Recovery
from waypost.workflows.runner import NO_REQUEST, STOP_TIMEOUT_S, Outcome, Request, Runner
from waypost.workflows.views import Answer, Dependencies, Recorder, Rights, WorkflowView

_MAX_SUBMIT_ATTEMPTS: Final = 4

Data = dict[str, Any]


class Proxy(Protocol):
    """The built-in workflow that wraps the call of a single capability."""

    async def start(self, given: Data, caller: Caller) -> Answer:
        """Start an instance for the capability that `given` names."""

    def explain(self, transition: str, caller: Caller) -> Answer:
        """Explain the workflow, or the call of the capability that `transition` names."""

    def answer_unknown(self, name: str, given: Data | None, caller: Caller) -> Answer:
        """The answer about a definition that does not exist, which was to be started with `given`."""


class Engine:
    """Starts, shows, moves, explains and cancels the instances of a hub."""

    def __init__(self, store: Store, context: ExecutorContext, rights: Rights, audit: AuditLog | None = None) -> None:
        self._store = store
        self.rights = rights
        self.recorder = Recorder(audit)
        self.draining = False
        self.proxy: Proxy | None = None
        """The built-in workflow for single capabilities; set by the gateway."""
        self.leads: tuple[Data, ...] = ()
        """Links for answers that have no instance."""
        # Executors run child workflows through the runner, which is built from what the executors are built with.
        self.library = Library(store, replace(context, run_child=lambda *call: self.runner.run_child(*call)))
        self.cache = InstanceCache(store, self.library)
        self.runner: Runner = Runner(store, self.cache, self.recorder, self._begin_child)
        self.approvals = Approvals(store, self.cache, self.runner, self.recorder)
        self._dependencies = Dependencies(rights, context.function)
        self.recovery = Recovery(self.cache, self.runner, self.approvals, self._dependencies.are_met)

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Refuse new instances, wait for running work, then cancel the rest; the next start recovers it."""
        self.draining = True
        await self.runner.stop(timeout_s)

    async def start(self, definition_id: str, given: Data, caller: Caller) -> Answer:
        """Start an instance and follow its chain until a caller has to decide."""
        if self.proxy is not None and definition_id in ("", PROXY):
            return await self.proxy.start(given, caller)
        try:
            outcome = await self.begin(definition_id, given, caller)
        except WorkflowRefused as error:
            if self.proxy is not None and error.code == "UNKNOWN_ID":
                return self.proxy.answer_unknown(definition_id, given, caller)
            return views.no_instance_error(error, *self.leads, definitionId=definition_id)
        return views.describe_instance(outcome.instance, caller.principal, outcome.chain, outcome.error)

    async def begin(
        self, definition_id: str, given: Data, caller: Caller, *, authorised: bool = False, **more: Any
    ) -> Outcome:
        """Start an instance by a name of its definition; raises `WorkflowRefused`."""
        definition = await self._find_startable(definition_id, caller, authorised, inside=bool(more.get("depth")))
        return await self.begin_by(definition, given, caller, **more)

    async def begin_by(self, definition: Definition, given: Data, caller: Caller, **more: Any) -> Outcome:
        """Start an instance of a definition; raises `WorkflowRefused` if the input does not match its schema."""
        filled = with_defaults(definition.input_schema, given)
        if definition.schema is not None and not definition.schema.is_valid(filled):
            problems = definition.schema.problems(filled)
            raise WorkflowRefused(
                f"The input of {definition.id} does not match its schema: {'; '.join(problems)}",
                "INPUT_SCHEMA_VIOLATION",
                problems=problems,
            )
        # Before the instance: a crash in between leaves a definition that nothing uses, not an instance without one.
        await self.library.pin(definition)
        instance, due_at = transitions.create_instance(
            definition, filled, caller.principal, now=self._store.now(), **more
        )
        entry: Data = {"transition": START, "from": None, "to": instance.state.name, "by": caller.principal.id}
        entry |= {"argumentsDigest": digest(filled), "delta": instance.body.context}
        # Busy before it is stored: maintenance would otherwise follow the chain of the new instance as well.
        self.runner.busy.add(instance.id)
        try:
            await self._store.instances.start(instance.to_record(due_at), instance.body.started_at, entry)
            self.cache.keep(instance)
            self.recorder.record_action(instance, caller, "workflow.started", instance.state.name)
            if instance.is_over:
                self.runner.announce_end(instance)
            return await self.runner.follow(Outcome(instance), caller)
        finally:
            self.runner.busy.discard(instance.id)

    async def call_once(
        self, definition: Definition, given: Data, transition: str, arguments: Data, caller: Caller
    ) -> Outcome:
        """Take a transition of a new instance that is removed again when the transition ends.

        Raises `WorkflowRefused` if the transition is refused; the instance is stored when it is allowed to run. One
        that was cancelled, or taken over by another process, stays.
        """
        principal = caller.principal
        instance, due_at = transitions.create_instance(definition, given, principal, now=self._store.now())
        try:
            plan = transitions.find_legal_transition(instance, instance.version, transition, principal)
            arguments = transitions.check_arguments(instance, plan, principal, arguments)
        except WorkflowRefused as error:
            self.recorder.record_refusal(instance, caller, transition, error)
            raise
        await self.library.pin(definition)
        entry: Data = {"transition": START, "from": None, "to": instance.state.name, "by": principal.id}
        entry["argumentsDigest"] = digest(given)
        return await self.runner.take_once(instance, due_at, entry, transition, arguments, caller)

    async def _find_startable(
        self, definition_id: str, caller: Caller, authorised: bool, *, inside: bool
    ) -> Definition:
        if self.draining and not inside:  # running moves may need a child to finish
            raise WorkflowRefused("The hub is about to stop; start it again later.", "DRAINING")
        # A workflow may start what is hidden from its caller; the rights to run it are checked all the same.
        definition = self.find_definition(definition_id, None if authorised or inside else caller)
        if not authorised:
            try:
                await self.rights.check(definition.tool_name, caller)
            except WorkflowRefused as error:
                self.recorder.record_denial(definition.tool_name, caller, error)
                raise
        if not definition.model.enabled:
            raise WorkflowRefused(f"Workflow {definition.id} is disabled", "WORKFLOW_DISABLED")
        return definition

    async def _begin_child(
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
        return views.describe_instance(outcome.instance, caller.principal, outcome.chain)

    async def get_visible(self, workflow_id: str, principal: Principal) -> Instance:
        """An instance that the principal may see; any other raises the same error as an unknown id."""
        instance = await self.cache.get(workflow_id, principal)
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
        request = NO_REQUEST
        try:
            if request_id:
                transitions.check_request_id(request_id)
                request = Request(request_id, digest([expected, transition, arguments, resolve, output]))
            for _ in range(_MAX_SUBMIT_ATTEMPTS):
                instance = self.cache.find(workflow_id, expected, principal)
                if instance is None:
                    instance = await self.get_visible(workflow_id, principal)
                # First, so that a move which comes too late cannot win against a timeout that is due.
                if instance.pending_move is not None or instance.body.deadline:
                    instance = (await self.recovery.apply_due(instance)).instance
                # Before the version is compared: the first submit under this id has changed it.
                if request_id and (replayed := await self._find_answer(instance, request, principal)):
                    return replayed
                try:
                    if resolve:
                        outcome = await self._resolve(instance, expected, transition, resolve, output, caller, request)
                    elif transition == RESUME:
                        outcome = await self._resume(instance, expected, caller, request)
                    else:
                        plan = transitions.find_legal_transition(instance, expected, transition, principal)
                        # It counts against rate limits, so only once the move is legal at this version.
                        await self.rights.check(instance.definition.tool_name, caller)
                        checked = transitions.check_arguments(instance, plan, principal, arguments)
                        outcome = await self.runner.take(instance, transition, checked, caller, request=request)
                        if outcome.instance.body.pending:
                            outcome = await self._follow_chain(outcome, caller, request, answered=outcome.instance)
                except StaleVersion:
                    # `Runner.take` raises it only while nothing has run, so that another attempt repeats no effect.
                    self.cache.drop(workflow_id)
                    continue
                return views.describe_instance(outcome.instance, principal, outcome.chain, outcome.error)
        except WorkflowRefused as error:
            return await self._refuse(error, workflow_id, expected, transition, caller)
        stale = WorkflowRefused(f"Other callers are moving version {expected}.", "STALE_WORKFLOW_VERSION")
        return await self._refuse(stale, workflow_id, expected, transition, caller)

    async def _resume(self, instance: Instance, expected: int, caller: Caller, request: Request) -> Outcome:
        transitions.check_version(instance, expected)
        if instance.body.halted is None:
            raise WorkflowRefused("There is nothing to resume.", "INVALID_TRANSITION")
        await self.rights.check(instance.definition.tool_name, caller)
        return await self._follow_chain(Outcome(transitions.clear_halt(instance)), caller, request)

    async def _follow_chain(
        self, taken: Outcome, caller: Caller, request: Request, answered: Instance | None = None
    ) -> Outcome:
        """Follow the chain, then store its result as the answer of the request, unless the move already stored it."""
        outcome = await self.runner.follow(taken, caller)
        # The same object means that the chain took no move: the commit of the move has stored this answer already.
        if request.id and outcome.instance is not answered:
            answer = views.describe_instance(outcome.instance, caller.principal, outcome.chain, outcome.error)
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
        request: Request,
    ) -> Outcome:
        # Not `check_version`, which refuses every pending move: the unknown outcome is one.
        if instance.version != expected:
            raise transitions.stale_version_error(instance, expected)
        pending_move = instance.pending_move
        if pending_move is None or pending_move.kind != "unknown" or pending_move.move != transition:
            which = f" of {shorten(transition)}" if transition else ""
            raise WorkflowRefused(f"There is no unknown outcome{which} to resolve.", "INVALID_TRANSITION")
        if how == "retry":
            await self.rights.check(instance.definition.tool_name, caller)
            # With the key of the first run, by which the other side can recognise the repetition.
            executing = msgspec.structs.replace(pending_move, kind="executing", holder=self.runner.holder)
            taken = await self.runner.run(await self.runner.reserve(instance, executing), caller)
        elif how == "succeeded":
            taken = await self.runner.finish(
                instance, pending_move, {} if output is None else output, resolvedBy=caller.principal.id
            )
        elif how == "failed":
            error = ExecutorFailed(f"{caller.principal.id} resolved it as not done.")
            failed = await self.runner.fail(instance, pending_move, error, decidedBy=caller.principal.id)
            taken = Outcome(failed.instance)
        else:
            raise WorkflowRefused(f"resolve must be retry, succeeded or failed, not {how!r}.")
        self.recorder.record_action(instance, caller, "outcome.resolved", f"{pending_move.move}: {how}")
        return await self._follow_chain(taken, caller, request)

    async def _find_answer(self, instance: Instance, request: Request, principal: Principal) -> Answer | None:
        pending_move = instance.pending_move
        if pending_move is not None and pending_move.request == request.id:
            # The first submit has not ended: the repetition learns where the instance stands, and runs nothing.
            _check_same_request(pending_move.request_digest, request)
            if pending_move.kind == "unknown":  # which this raises as an error with links to resolve it
                transitions.check_version(instance, instance.version)
            return views.describe_instance(instance, principal)
        found = await self._store.requests.get(instance.id, request.id)
        if found is None:
            return None
        _check_same_request(found.digest, request)
        answer = msgspec.convert(found.answer, Answer)
        # Stored with the move, whose chain was followed without the submit: after an approval, a child or a crash.
        if answer.data["status"] == "going_on" and not answer.refused:
            return views.describe_instance(instance, principal)
        return answer

    async def _refuse(
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
                definition, given = instance.definition, self.definition_id(definition_id)
                if given and given != (own := definition.id):
                    message = f"{workflow_id} is an instance of {own}, not of {shorten(given)}; omit one of the two."
                    raise WorkflowRefused(message, "DEFINITION_MISMATCH", nearest=[own])
                allowed = view.list_allowed(instance)
                if not view.finds(definition):
                    return Answer({"definitionId": definition.id, **allowed})
            else:
                definition = self.find_definition(definition_id, caller)
                view.check(definition)
            whole = view.transition(definition, transition) if transition else view.definition(definition)
            return Answer({**whole, **allowed})
        except WorkflowRefused as error:
            if self.proxy is not None and error.code == "UNKNOWN_ID" and not workflow_id:
                return self.proxy.answer_unknown(definition_id, None, caller)
            return views.no_instance_error(error, *self.leads, **about)

    def view(self, caller: Caller) -> WorkflowView:
        """The workflows as a caller may see them."""
        return WorkflowView(self.rights, caller, self._dependencies)

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
        after = await self.runner.end(instance, reason, caller.principal.id, caller.chain.way_in)
        return views.describe_instance(after, caller.principal)

    def definition_id(self, name: str) -> str:
        """The definition id for an id, a tool name or a portable tool name."""
        for known in (name, name.removeprefix(CANONICAL)):
            if self.library.get(known) is not None:
                return known
        return self.rights.canonical(name).removeprefix(CANONICAL)

    def find_definition(self, name: str, caller: Caller | None) -> Definition:
        """A definition by one of its names; one that is hidden from the caller counts as unknown."""
        found = self.library.get(self.definition_id(name))
        if found is not None and (caller is None or not self.rights.is_hidden(found.tool_name, caller)):
            return found
        if caller is not None and self.rights.is_there(name) and self.rights.finds(name, caller):
            message = f"{shorten(name)!r} is a tool, not a workflow; call it by its name."
            raise WorkflowRefused(message, "UNKNOWN_ID", nearest=[], tool=self.rights.canonical(name))
        similar = self.library.find_nearest(name.removeprefix(CANONICAL))
        near = [one for one in similar if caller is None or self.rights.finds(f"{CANONICAL}{one}", caller)]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise WorkflowRefused(f"Unknown workflow {shorten(name)!r}.{hint}", "UNKNOWN_ID", nearest=near)


def _unknown_instance(workflow_id: str) -> WorkflowRefused:
    return WorkflowRefused(f"Unknown workflow instance {shorten(workflow_id)!r}.", "UNKNOWN_WORKFLOW")


def _check_same_request(known: str, request: Request) -> None:
    if known != request.digest:
        raise WorkflowRefused(
            f"The request id {request.id!r} was used for another call; use a new one.", "REQUEST_ID_REUSED"
        )
