# The service: the base with the extra `serve`, on a CPU, as a user without rights. No torch, no model hub, no network use.
# The steps are the README's; docs/deploy.md goes through them.
FROM python:3.11-slim AS build
RUN python -m venv /opt/suwen
ENV PATH=/opt/suwen/bin:$PATH
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE NOTICE ./
COPY recipes recipes
COPY src src
# An index in PostgreSQL needs more: deploy/cluster.compose.yaml asks for it.
ARG EXTRAS=serve
RUN pip install --no-cache-dir -c constraints.txt ".[$EXTRAS]"

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /data suwen \
    && install --directory --owner=suwen --group=suwen --mode=0750 /data
COPY --from=build /opt/suwen /opt/suwen
ENV PATH=/opt/suwen/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SUWEN_SERVE_HOST=0.0.0.0 \
    SUWEN_SERVE_PORT=8000 \
    SUWEN_SERVE_KEYS=keys.toml
# Indexes, keys.toml and suwen.toml: paths in commands are relative to it.
WORKDIR /data
VOLUME /data
# By number, so that Kubernetes can see that it is not root.
USER 10001
EXPOSE 8000
# Alive, not ready: an index that is still loading is no reason to start the container again.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"SUWEN_SERVE_PORT\"]}/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["suwen"]
CMD ["serve", "my-index"]
