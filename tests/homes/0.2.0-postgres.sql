-- The journals of shared lanes, as `remembrancer/journal/postgres.py` asks for them. Run as the role that is to decide
-- over them, in one transaction; `remembrancer share start` does so where there are none yet.
CREATE TABLE remembrancer.members (
    lane text, role text, member text NOT NULL, read_only boolean NOT NULL, PRIMARY KEY (lane, role));
CREATE TABLE remembrancer.lanes (
    lane text PRIMARY KEY, identity text NOT NULL, head bigint NOT NULL DEFAULT 0, first bigint NOT NULL DEFAULT 1,
    at float8 NOT NULL DEFAULT 0);
CREATE TABLE remembrancer.entries (
    lane text REFERENCES remembrancer.lanes ON DELETE CASCADE, position bigint, id text NOT NULL, body bytea,
    at float8 NOT NULL, PRIMARY KEY (lane, position), UNIQUE (lane, id)
) WITH (  -- a scrubbed body is cleared away soon
    autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 0, toast.autovacuum_vacuum_scale_factor = 0);
CREATE TABLE remembrancer.snapshots (
    lane text REFERENCES remembrancer.lanes ON DELETE CASCADE, name text, journal text NOT NULL,
    position bigint NOT NULL, entry_id text NOT NULL, size_bytes bigint NOT NULL, PRIMARY KEY (lane, name));
CREATE TABLE remembrancer.pieces (
    lane text REFERENCES remembrancer.lanes ON DELETE CASCADE, name text, number bigint, body bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (lane, name, number));
CREATE TABLE remembrancer.leases (
    lane text REFERENCES remembrancer.lanes ON DELETE CASCADE, name text, holder text NOT NULL,
    until timestamptz NOT NULL, PRIMARY KEY (lane, name));
CREATE TABLE remembrancer.notices (
    lane text REFERENCES remembrancer.lanes ON DELETE CASCADE, host text, body bytea NOT NULL,
    at timestamptz NOT NULL, PRIMARY KEY (lane, host));
ALTER TABLE remembrancer.entries ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE remembrancer.pieces ALTER COLUMN body SET STORAGE EXTERNAL;

-- True if who asks decides over the schema, or is a member of the lane (who may write).
CREATE FUNCTION remembrancer.may(of_lane text, to_write boolean) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_has_role(session_user, current_user, 'MEMBER') OR EXISTS (
        SELECT FROM remembrancer.members m
        WHERE m.lane = of_lane AND m.role = session_user AND NOT (to_write AND m.read_only))
$$;

-- The lane's row, locked until the end of the statement that asks; none if there is no such lane.
CREATE FUNCTION remembrancer.locked(of_lane text) RETURNS SETOF remembrancer.lanes
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT remembrancer.may(of_lane, true) THEN
        RAISE insufficient_privilege USING MESSAGE = 'this member may not write';
    END IF;
    RETURN QUERY SELECT * FROM remembrancer.lanes l WHERE l.lane = of_lane FOR UPDATE;
END $$;
REVOKE EXECUTE ON FUNCTION remembrancer.locked FROM PUBLIC;

-- Append entries, or find them: `place` is the position of the last, NULL if the mark is not of this journal.
CREATE FUNCTION remembrancer.append(
    of_lane text, of_journal text, behind bigint, behind_id text, ids text[], bodies bytea[],
    OUT identity text, OUT head bigint, OUT first bigint, OUT id_behind text, OUT place bigint
) RETURNS SETOF record
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    there remembrancer.lanes;
    now_s float8;
BEGIN
    SELECT * INTO there FROM remembrancer.locked(of_lane);
    IF NOT FOUND THEN RETURN; END IF;
    identity := there.identity; head := there.head; first := there.first;
    SELECT e.id INTO id_behind FROM remembrancer.entries e WHERE e.lane = of_lane AND e.position = behind;
    IF of_journal IN ('', identity) AND behind <= head
       AND (behind < first OR id_behind = behind_id OR (behind_id = '' AND id_behind IS NOT NULL)) THEN
        SELECT e.position INTO place FROM remembrancer.entries e
        WHERE e.lane = of_lane AND e.id = ids[cardinality(ids)];
        IF NOT FOUND THEN
            now_s := greatest(there.at, extract(epoch FROM clock_timestamp()));
            INSERT INTO remembrancer.entries (lane, position, id, body, at)
            SELECT of_lane, append.head + new.number, new.id, new.body, now_s
            FROM unnest(ids, bodies) WITH ORDINALITY AS new (id, body, number);
            head := head + cardinality(ids); place := head;
            UPDATE remembrancer.lanes l SET head = append.head, at = now_s WHERE l.lane = of_lane;
            PERFORM pg_notify('remembrancer_' || md5(of_lane), '');
        END IF;
    END IF;
    RETURN NEXT;
END $$;

-- Delete the body of an entry, or all entries before a position: true if there is such a lane.
CREATE FUNCTION remembrancer.scrub(of_lane text, scrubbed bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM remembrancer.locked(of_lane);
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE remembrancer.entries e SET body = NULL
    WHERE e.lane = of_lane AND e.position = scrubbed AND e.body IS NOT NULL;
    RETURN true;
END $$;
CREATE FUNCTION remembrancer.trim(of_lane text, before bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM remembrancer.locked(of_lane);
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE remembrancer.lanes l SET first = greatest(l.first, least(before, l.head + 1)) WHERE l.lane = of_lane;
    DELETE FROM remembrancer.entries e USING remembrancer.lanes l
    WHERE l.lane = of_lane AND e.lane = of_lane AND e.position < l.first;
    RETURN true;
END $$;

-- Everybody may come in; by these policies a member finds its own lanes there, and others nothing.
GRANT USAGE ON SCHEMA remembrancer TO PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA remembrancer TO PUBLIC;
GRANT INSERT, DELETE ON remembrancer.snapshots, remembrancer.pieces, remembrancer.leases TO PUBLIC;
GRANT UPDATE ON remembrancer.leases TO PUBLIC;
GRANT INSERT, UPDATE ON remembrancer.notices TO PUBLIC;
ALTER TABLE remembrancer.members ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON remembrancer.members FOR SELECT USING (role = session_user);
DO $$
DECLARE
    each text;
    mine constant text := 'lane IN (SELECT m.lane FROM remembrancer.members m WHERE m.role = session_user)';
    writable constant text :=
        'lane IN (SELECT m.lane FROM remembrancer.members m WHERE m.role = session_user AND NOT m.read_only)';
BEGIN
    FOREACH each IN ARRAY ARRAY['lanes', 'entries', 'snapshots', 'pieces', 'leases', 'notices'] LOOP
        EXECUTE format('ALTER TABLE remembrancer.%I ENABLE ROW LEVEL SECURITY', each);
        EXECUTE format('CREATE POLICY reads ON remembrancer.%I FOR SELECT USING (%s)', each, mine);
    END LOOP;
    FOREACH each IN ARRAY ARRAY['snapshots', 'pieces', 'leases'] LOOP
        EXECUTE format('CREATE POLICY writes ON remembrancer.%I USING (%s)', each, writable);
    END LOOP;
END $$;
-- A host leaves its own word alone.
CREATE POLICY own ON remembrancer.notices USING (
    (lane, host) IN (SELECT m.lane, m.member FROM remembrancer.members m WHERE m.role = session_user));
