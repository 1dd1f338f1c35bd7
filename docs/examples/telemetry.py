from opentelemetry import trace

from waypost import Context, Hub

hub = Hub("telemetry", version="1.0.0")
tracer = trace.get_tracer("orders")


@hub.tool
async def ship(order: str) -> str:
    """Ship an order."""
    with tracer.start_as_current_span("pack", attributes={"order": order}):
        return f"Order {order} is on its way."


@hub.on("tool_call")
async def label(name: str, arguments: dict[str, object], ctx: Context) -> object:
    span = trace.get_current_span()
    span.set_attribute("orders.client", ctx.client_info.name if ctx.client_info else "unknown")
    return await Hub.on_tool_call(hub, name, arguments, ctx)


def report_to_the_console() -> None:
    """Write every span to standard error; an application has an exporter of its own here."""
    import sys

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
    trace.set_tracer_provider(provider)


if __name__ == "__main__":
    report_to_the_console()
    hub.run()
