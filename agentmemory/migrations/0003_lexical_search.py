"""Words of a text as lexemes, in the database itself: a row and its index change in one statement, whoever writes (M7).

Everything is made by functions of our own rather than by a text search configuration: the default parser takes
`ABC-123` for a word and a negative number, knows no identifiers, and depends on the database's locale. The functions
have bodies that are bound when they are created, so that no search path changes what they mean.
"""

from __future__ import annotations

from django.db import migrations

# As much of one text is indexed: far above a memory's limits, far below what a tsvector can hold (1 MB).
TEXT_LIMIT = 30_000
# Longer words are cut, here and in queries alike, so that none exceeds a lexeme's 2 kB.
WORD_LIMIT = 64

# Accents, vowel points, variation selectors, joiners: taken away after decomposition.
MARKS = (
    r"\u00ad\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1-\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    r"\u1ab0-\u1aff\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e\u2060-\u2064\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\ufeff"
)
# Scripts that put no spaces between words (and Korean, which glues particles on): found by pairs of characters.
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035"
    r"\u3040-\u30fa\u30fc-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
# What stands between words. All else is a part of one, whatever the locale thinks of it.
SEPARATORS = (
    r"\u0001-\u002f\u003a-\u0040\u005b-\u0060\u007b-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u00d7\u00f7"
    r"\u02c2-\u02df\u055a-\u055f\u0589-\u058f\u05be\u05c0\u05f3-\u05f4\u060c\u061b\u061f\u066a-\u066d\u06d4"
    r"\u0964-\u0965\u1680\u2000-\u206f\u20a0-\u20cf\u2100-\u2bff\u2e00-\u2e7f\u3000-\u3004\u3008-\u3020\u3030"
    r"\u303d-\u303f\u30fb\ue000-\uf8ff\ufe10-\ufe1f\ufe30-\ufe6f\ufff0-\uffff"
    r"\U0001d000-\U0001d3ff\U0001f000-\U0001faff\U000e0000-\U0010ffff"
)
# What holds an identifier, a path, a version or an address together when it stands between two words.
JOINTS = r"[-._/:@\\]{1,3}"

# Greek, Cyrillic and Armenian capitals, which `lower` leaves alone in a database of the C locale.
CAPITALS = "".join(chr(n) for n in range(0x370, 0x557) if chr(n).isupper() and len(chr(n).lower()) == 1)

FOLDED = rf"""
CREATE FUNCTION agentmemory_folded(source text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (
    SELECT left(CASE WHEN plain ~ '[\u0370-\u0556]' THEN translate(plain, '{CAPITALS}', '{CAPITALS.lower()}') ELSE plain END,
        {TEXT_LIMIT})
    FROM (SELECT normalize(regexp_replace(normalize(left(source, {TEXT_LIMIT}), NFKD), '[{MARKS}]+', '', 'g'), NFC))
            AS stripped (bare),
        LATERAL (SELECT translate(bare, 'øØłŁđĐðÐħĦŧŦŋŊı', 'oOlLdDdDhHtTnNi')) AS single (lettered),
        LATERAL (SELECT replace(replace(replace(replace(replace(replace(replace(replace(lettered,
            'ß', 'ss'), 'ẞ', 'SS'), 'æ', 'ae'), 'Æ', 'AE'), 'œ', 'oe'), 'Œ', 'OE'), 'þ', 'th'), 'Þ', 'TH'))
            AS doubled (plain)
)
"""  # noqa: S608 - made of the constants above

# Cuts where camelCase turns.
CAMEL = r"regexp_replace(token, '([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])', '\1\3 \2\4', 'g')"

WORDS = rf"""
CREATE FUNCTION agentmemory_words(source text)
RETURNS TABLE (place integer, kind text, word text, stem text)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE ROWS 100
BEGIN ATOMIC
    WITH found AS (
        SELECT matched[1] AS token, array_agg(at::integer) AS places
        FROM regexp_matches(
            regexp_replace(agentmemory_folded(source), '[{UNSPACED}]+', ' \& ', 'g'),
            '[^{SEPARATORS}]+(?:{JOINTS}[^{SEPARATORS}]+)*(?:\+\+|#)?', 'g'
        ) WITH ORDINALITY AS m (matched, at)
        GROUP BY 1
    ), piece AS (
        SELECT places, 'word' AS kind, lower(token) AS word FROM found WHERE token ~ '^[a-z]+$|^[A-Z][a-z]*$|^[0-9]+$'
        UNION ALL
        SELECT places, 'pair', pair
        FROM found, LATERAL (
            SELECT sign || lead(sign) OVER (ORDER BY at) AS pair
            FROM string_to_table(token, NULL) WITH ORDINALITY AS s (sign, at)
        ) AS pairs
        WHERE token ~ '^[{UNSPACED}]' AND pair IS NOT NULL
        UNION ALL
        SELECT places, 'last', right(token, 1) FROM found WHERE token ~ '^[{UNSPACED}]'
        UNION ALL
        -- A stop word in capitals is a name (IT, WHO, US): kept in capitals, where the stop word is not found.
        SELECT places, 'capitals', token FROM found WHERE token ~ '^[A-Z]{{2,5}}$'
            AND pg_catalog.ts_lexize('pg_catalog.english_stem', lower(token)) = '{{}}'
        UNION ALL
        SELECT places, CASE WHEN part = lower(token) THEN 'word' ELSE 'part' END, part
        FROM found, LATERAL (
            SELECT lower(token) AS part
            UNION SELECT regexp_replace(lower(token), '^v(?=[0-9])', '')
            UNION SELECT regexp_split_to_table(lower(token), '[/:@\\]+')
            UNION SELECT regexp_split_to_table(lower(token), '[/:@\\.]+')
            UNION SELECT regexp_split_to_table(lower(token), '[-._/:@\\+#]+')
            UNION SELECT regexp_split_to_table(lower({CAMEL}), '[-._/:@\\+# ]+')
            UNION SELECT regexp_split_to_table(
                regexp_replace(lower({CAMEL}), '([a-z])(?=[0-9])|([0-9])(?=[a-z])', '\1\2 ', 'g'), '[-._/:@\\+# ]+')
        ) AS parts
        WHERE token !~ '^[a-z]+$|^[A-Z][a-z]*$|^[0-9]+$|^[{UNSPACED}]' AND part <> ''
    )
    SELECT p.place, kind, left(word, {WORD_LIMIT}),
        CASE WHEN word ~ '^[a-z]{{1,{WORD_LIMIT}}}$'
            THEN (pg_catalog.ts_lexize('pg_catalog.english_stem', word))[1] ELSE left(word, {WORD_LIMIT}) END
    FROM piece, unnest(places) AS p (place);
END
"""  # noqa: S608 - made of the constants above

VECTOR = r"""
CREATE FUNCTION agentmemory_vector(source text) RETURNS tsvector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN (
    SELECT coalesce(string_agg(
        '''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || ''':' || places, ' '), '')::tsvector
    FROM (
        SELECT lexeme, string_agg(DISTINCT least(place, 16383)::text, ',') AS places
        FROM agentmemory_words(source) CROSS JOIN LATERAL unnest(ARRAY[word, stem]) AS lexeme
        WHERE lexeme <> ''
        GROUP BY lexeme
    ) AS lexemes
)
"""

# A: the key, chosen to name the memory. B: what it says. C: tags, chosen too, but shared by many. D: words around it.
MEMORY_VECTOR = """
CREATE FUNCTION agentmemory_memory_vector(key text, content text, tags text[], context text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN setweight(coalesce(agentmemory_vector(key), ''), 'A')
    || setweight(coalesce(agentmemory_vector(content), ''), 'B')
    || setweight(coalesce(agentmemory_vector(array_to_string(tags, E'\\n')), ''), 'C')
    || setweight(coalesce(agentmemory_vector(context), ''), 'D')
"""

# Bound to its path, because a body in PL/pgSQL is resolved when it runs.
INDEXING = """
CREATE FUNCTION agentmemory_index_memory() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.search := agentmemory_memory_vector(NEW.key, NEW.content, NEW.tags, NEW.context);
    RETURN NEW;
END $$;
CREATE TRIGGER memory_index BEFORE INSERT OR UPDATE OF key, content, tags, context, search ON agentmemory_memory
FOR EACH ROW EXECUTE FUNCTION agentmemory_index_memory()
"""

NO_INDEXING = "DROP TRIGGER memory_index ON agentmemory_memory; DROP FUNCTION agentmemory_index_memory()"


class Migration(migrations.Migration):
    dependencies = [("agentmemory", "0002_composite_keys")]

    operations = [
        migrations.RunSQL(FOLDED, "DROP FUNCTION agentmemory_folded(text)"),
        migrations.RunSQL(WORDS, "DROP FUNCTION agentmemory_words(text)"),
        migrations.RunSQL(VECTOR, "DROP FUNCTION agentmemory_vector(text)"),
        migrations.RunSQL(MEMORY_VECTOR, "DROP FUNCTION agentmemory_memory_vector(text, text, text[], text)"),
        migrations.RunSQL(INDEXING, NO_INDEXING),
        migrations.RunSQL("UPDATE agentmemory_memory SET search = NULL WHERE search IS NULL", migrations.RunSQL.noop),
    ]
