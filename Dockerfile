# syntax=docker/dockerfile:1
# Built in one image, run in another: what runs has no compiler, no pip cache and no root.
FROM python:3.11-slim AS build
WORKDIR /src
# Every file that is downloaded has a hash in these two lists (scripts/lock).
COPY requirements ./requirements
RUN pip install --no-cache-dir --require-hashes -r requirements/build.txt \
    && python -m venv /opt/penstock \
    && /opt/penstock/bin/pip install --no-cache-dir --require-hashes -r requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/penstock/bin/pip install --no-cache-dir --no-deps --no-index /wheels/*.whl

# SQLite is Debian's (`penstock store check --json` and /readyz show its version): below 3.51.3 let one process
# have a database file, as `penstock serve` does; docs/concepts/sqlite.md says why.
FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/penstock --create-home penstock
COPY --from=build /opt/penstock /opt/penstock
ENV PATH=/opt/penstock/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PENSTOCK_STORE=sqlite:////var/lib/penstock/penstock.db
WORKDIR /var/lib/penstock
VOLUME /var/lib/penstock
USER 10001
LABEL org.opencontainers.image.title="Penstock" \
      org.opencontainers.image.description="A durable engine for messages that must go out later, slower or in turn." \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="Apache-2.0 AND MIT" \
      org.opencontainers.image.source="https://github.com/penstock-engine/penstock" \
      org.opencontainers.image.documentation="https://github.com/penstock-engine/penstock/tree/main/docs"
EXPOSE 8700 8701
# Inside the container loopback is always there; who publishes the port decides who else may come.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8700 && printf 'GET /healthz HTTP/1.1\\r\\nhost:localhost\\r\\nconnection:close\\r\\n\\r\\n' >&3 && head -1 <&3 | grep -q ' 200 '"]
ENTRYPOINT ["penstock"]
CMD ["serve"]
