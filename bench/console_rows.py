"""Rows for `bench.console`: an installation of any size that has run for two months, made by the database itself."""

# ruff: noqa: S311 - chance is enough here
from __future__ import annotations

import random
from typing import Any

from bench import search

MESSAGES_A_SESSION = 100
PASSES_A_SESSION = 4
ORIGINALS = 2_000
WORDS_OF_A_MESSAGE = 12
ACTS = 50_000

MEMORIES = """
INSERT INTO agentmemory_memory (id, space_id, owner_id, origin, key, content, tags, context, importance, pinned,
    version, created_by, created_at, updated_at, withdrawn_by, withdrawn_reason, edited_by, search, withdrawn_at)
SELECT gen_random_uuid(), space_id, (%(agents)s::bigint[])[1 + n %% 10],
    CASE WHEN n %% 20 = 0 THEN 'curated' ELSE 'distilled' END, 'copy-' || n, content, ARRAY['t' || n %% 50], '',
    importance, n %% 5000 = 0, 1, 'bench', now() - n * interval '60 days' / %(count)s,
    now() - n * interval '60 days' / %(count)s, '', '', '', search, CASE WHEN n %% 1000 = 1 THEN now() END
FROM generate_series(1, %(count)s) AS n
JOIN (SELECT row_number() OVER () - 1 AS at, * FROM agentmemory_memory WHERE key LIKE 'original%%') AS original
    ON n %% %(originals)s = at
"""
SOURCES = """
INSERT INTO agentmemory_memorysource (space_id, memory_id, session_id, session_name, uid, seq, quote, verified, version,
    created_at)
SELECT %(space)s, id, s.sid, s.name, 'm1', 1, 'words', n %% 500 <> 0, 1, now()
FROM (SELECT row_number() OVER () AS n, id FROM agentmemory_memory WHERE origin = 'distilled') AS memory
JOIN (SELECT row_number() OVER () - 1 AS at, id AS sid, name FROM agentmemory_session) AS s
    ON n %% %(sessions)s = at
"""
SESSIONS = """
INSERT INTO agentmemory_session (space_id, agent_id, name, title, metadata, last_seq, terminal_seq, quiet_since,
    created_at, updated_at)
SELECT %(space)s, (%(agents)s::bigint[])[1 + n %% 10], 'session-' || n, 'About ' || n, '{}', 100, 100, now(),
    now() - (%(count)s - n) * interval '60 days' / %(count)s, now()
FROM generate_series(1, %(count)s) AS n
"""
MESSAGES = """
INSERT INTO agentmemory_message (space_id, session_id, seq, uid, type, subtype, content, text, is_speech, ends_turn,
    delivery, is_error, parent_tool_use_id, tool_outcomes, digest, redactions, superseded_by, retraction_reason,
    created_at)
SELECT %(space)s, s.id, seq, 'm' || s.id || '-' || seq,
    CASE WHEN seq %% 10 = 0 THEN 'result' WHEN seq %% 2 = 0 THEN 'assistant' ELSE 'user' END, '',
    to_jsonb(original.text), original.text, seq %% 10 <> 0, seq %% 10 = 0, 'consumed', false, '', '{}',
    '0000', '{}', '', '', s.created_at
FROM agentmemory_session AS s CROSS JOIN generate_series(1, %(each)s) AS seq
JOIN bench_said AS original ON (s.id * 7 + seq) %% %(originals)s = original.at
"""
SAID = """
INSERT INTO agentmemory_messageindex (message_id, search)
SELECT m.id, original.search FROM agentmemory_message AS m
JOIN bench_said AS original ON (m.session_id * 7 + m.seq) %% %(originals)s = original.at WHERE m.is_speech
"""
CURSORS = """
INSERT INTO distillation_cursor (session_id, space_id, agent_id, holder, epoch, position, watermark, failures,
    window_failures, single_failures, attempts, last_error, waits_for, due_since, next_attempt_at, created_at)
SELECT id, space_id, agent_id, '', 4, CASE WHEN id %% 500 = 0 THEN 50 ELSE 100 END, 100, (id %% 500 = 0)::int, 0, 0, 0,
    '', '', CASE WHEN id %% 500 = 0 THEN now() - id * interval '1 second' END,
    CASE WHEN id %% 1000 = 0 THEN now() + interval '1 hour' END, now() FROM agentmemory_session
"""
PASSES = """
INSERT INTO distillation_distillationpass (space_id, agent_id, cursor_id, session_id, session_name, epoch, worker,
    start, "end", shown, "full", fence, known, provider_id, provider_name, model, extractor, prompt_version,
    input_tokens, output_tokens, cost, started_at, finished_at, answer, written, refused, outcome, failure, error)
SELECT s.space_id, s.agent_id, c.id, s.id, s.name, n, '', (n - 1) * 25, n * 25, '[]', false, '', '[]', NULL, 'glm', 'm',
    '', '', 2000, 300, 0.01, s.created_at + n * interval '1 minute', s.created_at + n * interval '2 minutes',
    '{"memories": []}', '[]', '[]',
    CASE WHEN s.id %% 200 = 0 THEN 'failed' WHEN n = 4 THEN 'empty' ELSE 'applied' END,
    CASE WHEN s.id %% 200 = 0 THEN 'timeout' ELSE '' END, ''
FROM agentmemory_session AS s JOIN distillation_cursor AS c ON c.session_id = s.id
CROSS JOIN generate_series(1, %(each)s) AS n ORDER BY s.id, n
"""
ACTIVITY = """
INSERT INTO agentmemory_activity (at, who, act, space_id, target_type, target_id, target, reason, detail)
SELECT now() - (%(count)s - n) * interval '1 minute', 'operator:ada', CASE WHEN n %% 3 = 0 THEN 'look' ELSE 'pin' END,
    %(space)s, 'agentmemory.memory', '', 'copy-' || n, 'why not', '{}' FROM generate_series(1, %(count)s) AS n
"""
EXECUTIONS = """
INSERT INTO sessions_exec_execution (session_id, space_id, execution_id, holder, epoch, acquired_at, expires_at, phase,
    seconds, assistant_uid, created_at)
SELECT id, space_id, gen_random_uuid(), CASE WHEN id %% 1000 = 0 THEN 'runner' ELSE '' END, 1, now(),
    CASE WHEN id %% 1000 = 0 THEN now() + interval '1 hour' END, 'safe', 30, '', now() FROM agentmemory_session
"""
INPUTS = """
INSERT INTO sessions_exec_input (space_id, session_id, uid, kind, prompt, digest, redactions, delivery,
    admitted_delivery, resume, state, created_at)
SELECT space_id, id, 'i' || id, 'prompt', '"words"', '00', '{}', 'queue', 'queue', true, 'pending', now()
FROM agentmemory_session WHERE id %% 100 = 0
"""
GIN = {
    "message_index_search": "ON agentmemory_messageindex USING gin (search)",
    "memory_search": "ON agentmemory_memory USING gin (search)",
}
TABLES = ("agentmemory_memory", "agentmemory_memorysource", "agentmemory_session", "agentmemory_message",
          "agentmemory_messageindex", "agentmemory_activity", "distillation_cursor", "distillation_distillationpass",
          "sessions_exec_execution", "sessions_exec_input")  # fmt: skip


def sql(statement: str, **values: Any) -> list[tuple[Any, ...]]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def fill(*, memories: int, messages: int) -> None:
    """So many memories, and so many messages in sessions that were distilled."""
    chance = random.Random(1)
    space, agents = search.originals(ORIGINALS, chance)
    owners, sessions = [agent.pk for agent in agents], max(messages // MESSAGES_A_SESSION, 1)
    # Copies need no trigger: their words are taken apart already. Indexes of words are quicker made at once.
    sql("SET session_replication_role = replica")
    for name in GIN:
        sql(f"DROP INDEX {name}")
    _say(chance)
    sql(MEMORIES, agents=owners, count=memories, originals=ORIGINALS)
    sql(SESSIONS, space=space.pk, agents=owners, count=sessions)
    sql(SOURCES, space=space.pk, sessions=sessions)
    sql(MESSAGES, space=space.pk, each=MESSAGES_A_SESSION, originals=ORIGINALS)
    sql(SAID, originals=ORIGINALS)
    sql(CURSORS)
    sql(PASSES, each=PASSES_A_SESSION)
    sql(ACTIVITY, space=space.pk, count=ACTS)
    sql(EXECUTIONS)
    sql(INPUTS)
    sql("SET session_replication_role = origin")
    for name, where in GIN.items():
        sql(f"CREATE INDEX {name} {where}")
    for table in TABLES:
        sql(f"VACUUM ANALYZE {table}")


def _say(chance: random.Random) -> None:
    """What messages say, with the words of each taken apart as a memory's are."""
    said = [search.words(chance, WORDS_OF_A_MESSAGE) for _ in range(ORIGINALS)]
    sql("CREATE TEMPORARY TABLE bench_said (at integer PRIMARY KEY, text text, search tsvector)")
    sql(
        "INSERT INTO bench_said SELECT n - 1, text, to_tsvector('english', text)"
        " FROM unnest(%(said)s::text[]) WITH ORDINALITY AS t (text, n)",
        said=said,
    )
