"""Workflows: durable state machines that offer an agent its legal next steps.

The models that a configuration is read into are also how a program writes a workflow: `hub.workflow("release",
Workflow(initial_state="draft", states={"draft": State(transitions={...}), ...}))`.
"""

from waypost.config.models import (
    Branch,
    Evidence,
    EvidenceNeed,
    Fallback,
    OnEnter,
    OnTimeout,
    Reliability,
    Retry,
    State,
    Step,
    StepRoute,
    Transition,
    Workflow,
)
from waypost.workflows.executors.capability import CapabilityCall
from waypost.workflows.executors.cli import Cli
from waypost.workflows.executors.human import Human
from waypost.workflows.executors.mcp import Mcp
from waypost.workflows.executors.noop import Noop
from waypost.workflows.executors.parallel import JoinSome, Parallel
from waypost.workflows.executors.pipeline import Pipeline
from waypost.workflows.executors.rest import Rest
from waypost.workflows.executors.script import Script
from waypost.workflows.executors.worker import WorkerCall
from waypost.workflows.executors.workflow import Child
from waypost.workflows.guards.all_of import AllOf
from waypost.workflows.guards.any_of import AnyOf
from waypost.workflows.guards.evidence import EvidenceGuard
from waypost.workflows.guards.expr import ExprGuard
from waypost.workflows.guards.not_ import Not
from waypost.workflows.guards.permission import PermissionGuard
from waypost.workflows.guards.role import RoleGuard

__all__ = [
    "AllOf",
    "AnyOf",
    "Branch",
    "CapabilityCall",
    "Child",
    "Cli",
    "Evidence",
    "EvidenceGuard",
    "EvidenceNeed",
    "ExprGuard",
    "Fallback",
    "Human",
    "JoinSome",
    "Mcp",
    "Noop",
    "Not",
    "OnEnter",
    "OnTimeout",
    "Parallel",
    "PermissionGuard",
    "Pipeline",
    "Reliability",
    "Rest",
    "Retry",
    "RoleGuard",
    "Script",
    "State",
    "Step",
    "StepRoute",
    "Transition",
    "WorkerCall",
    "Workflow",
]
