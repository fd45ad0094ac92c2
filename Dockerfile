FROM python:3.11-slim AS build
WORKDIR /app
COPY requirements.lock .
RUN python -m venv /app/.venv && /app/.venv/bin/pip install --no-cache-dir --require-hashes -r requirements.lock

FROM python:3.11-slim
RUN useradd --system --create-home --uid 10001 agentmemory
WORKDIR /app
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 AGENTMEMORY_DATA_DIR=/data AGENTMEMORY_STATIC_MANIFEST=true
COPY --from=build /app/.venv /app/.venv
COPY . .
RUN SECRET_KEY=only-to-collect-files AGENTMEMORY_DATA_DIR=/tmp/build python manage.py collectstatic --noinput \
    && install -d -o agentmemory -g agentmemory -m 700 /data
USER agentmemory
VOLUME /data
EXPOSE 8000
CMD ["python", "manage.py", "up", "--host", "0.0.0.0", "--no-worker"]
