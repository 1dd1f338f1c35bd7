# docker build -t waypost .
# docker run -p 127.0.0.1:8420:8420 -v ./config:/etc/waypost:ro -v waypost-data:/data waypost

FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /opt/waypost && \
    /opt/waypost/bin/python -m pip install --no-cache-dir --constraint constraints.txt '.[postgres,nats,telemetry]'

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin waypost && \
    install -d -o waypost -g waypost -m 700 /data
COPY --from=build /opt/waypost /opt/waypost
ENV PATH=/opt/waypost/bin:$PATH WAYPOST_DATA=/data PYTHONUNBUFFERED=1
WORKDIR /etc/waypost
VOLUME /data
USER waypost
EXPOSE 8420 49134
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8420/health', timeout=4)"]
# SIGTERM lets requests end before the hub stops.
STOPSIGNAL SIGTERM
ENTRYPOINT ["waypost"]
CMD ["serve", "waypost.yaml", "--host", "0.0.0.0"]
