from pathlib import Path
from typing import Any

from waypost import Hub
from waypost.workflows import Cli, ExprGuard, Human, OnTimeout, State, Transition, Workflow

HERE = str(Path(__file__).parent)
INPUT = {
    "type": "object",
    "properties": {"service": {"type": "string"}, "environment": {"type": "string", "default": "staging"}},
    "required": ["service"],
}


def script(*words: Any, **options: Any) -> Cli:
    return Cli(command="sh", working_directory=HERE, args=["pipeline.sh", *words], **options)


hub = Hub("deploys", version="1.0.0")
hub.workflow(
    "deploy_pipeline",
    Workflow(
        title="Deploy Pipeline",
        description="Lint, test and deploy a service.",
        input_schema=INPUT,
        initial_state="lint",
        timeout_ms=86_400_000,
        on_timeout=OnTimeout(target="aborted"),
        states={
            "lint": State(
                transitions={
                    "run_lint": Transition(target="test", actor="deterministic", executor=script("lint")),
                }
            ),
            "test": State(
                transitions={
                    "run_tests": Transition(
                        target="ready_to_deploy",
                        actor="deterministic",
                        executor=script("test", "$.input.service", idempotent=True),
                        output={"testsPassed": "$.output.json.passed", "coverage": "$.output.json.coverage"},
                    ),
                }
            ),
            "ready_to_deploy": State(
                transitions={
                    "ask": Transition(
                        title="Ask for the deployment",
                        target="approved",
                        guards=[ExprGuard(expr="$.context.testsPassed == true && $.context.coverage >= 80")],
                        executor=Human(prompt="May this be deployed?"),
                    ),
                    "abort": Transition(title="Abort deployment", target="aborted"),
                }
            ),
            "approved": State(
                transitions={
                    "deploy": Transition(
                        title="Deploy to environment",
                        target="deployed",
                        tags=["dangerous"],
                        executor=script("deploy", "$.input.service", "$.input.environment"),
                        output={"deploymentId": "$.output.json.deploymentId"},
                    ),
                }
            ),
            "deployed": State(terminal=True),
            "aborted": State(terminal=True, outcome="cancelled"),
        },
    ),
)
