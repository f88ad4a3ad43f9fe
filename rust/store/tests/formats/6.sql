PRAGMA foreign_keys = OFF;
BEGIN TRANSACTION;
CREATE TABLE common_events (
    seq INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    step REAL NOT NULL,
    lines TEXT NOT NULL,
    PRIMARY KEY (seq, first)
) WITHOUT ROWID;
INSERT INTO "common_events" VALUES(0,4714397696,4714397697,0.0,'{"timestamp":1795576145.8019443,"name":"submit","context":{"userid":0,"urgency":0,"flags":0,"version":1}}
{"timestamp":1795576145.8019452,"name":"validate"}
{"timestamp":1795576145.8019462,"name":"depend"}
{"timestamp":1795576145.801947,"name":"priority","context":{"priority":0}}
');
CREATE TABLE ended_jobs (
    seq INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    queue TEXT,
    result INTEGER NOT NULL,
    jobs BLOB NOT NULL
);
CREATE TABLE events (
    job INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    lines TEXT NOT NULL,
    PRIMARY KEY (job, seq)
) WITHOUT ROWID;
INSERT INTO "events" VALUES(2868903936,0,'{"timestamp":1795576145.6914759,"name":"submit","context":{"userid":0,"urgency":16,"flags":0,"version":1}}
{"timestamp":1795576145.6914768,"name":"validate"}
{"timestamp":1795576145.6914778,"name":"depend"}
{"timestamp":1795576145.6914787,"name":"priority","context":{"priority":16}}
');
INSERT INTO "events" VALUES(2868903936,4,'{"timestamp":1795576145.6914797,"name":"alloc","context":{"annotations":{"sched":{"resource_summary":"rank0/core0"}}}}
{"timestamp":1795576145.6914806,"name":"start"}
{"timestamp":1795576145.6914816,"name":"finish","context":{"status":0}}
{"timestamp":1795576145.6914825,"name":"release","context":{"ranks":"all","final":true}}
{"timestamp":1795576145.6914835,"name":"free"}
{"timestamp":1795576145.6914845,"name":"clean"}
');
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    userid INTEGER NOT NULL,
    t_submit REAL NOT NULL,
    spec INTEGER NOT NULL REFERENCES jobspecs(id),
    r TEXT
);
INSERT INTO "jobs" VALUES(2868903936,0,1.79557614569147586816e+09,1,'{"version":1,"execution":{"R_lite":[{"rank":"0","children":{"core":"0"}}],"nodelist":["node0"],"starttime":1795576145.6914759,"expiration":1795576205.6914759,"nslots":1}}');
INSERT INTO "jobs" VALUES(4714397696,0,1.79557614580194425577e+09,1,NULL);
INSERT INTO "jobs" VALUES(4714397697,0,1.79557614580194425577e+09,1,NULL);
CREATE TABLE jobspecs (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
INSERT INTO "jobspecs" VALUES(1,'{"version":1,"resources":[{"type":"slot","count":1,"with":[{"type":"core","count":1}],"label":"task"}],"tasks":[{"command":["true"],"slot":"task","count":{"per_slot":1}}],"attributes":{"system":{"duration":60.0,"cwd":"/","environment":{},"exec":{"test":{"run_duration":"0.0s"}}}}}');
CREATE TABLE kvs (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO "kvs" VALUES('site.key',X'31');
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('epoch_ms','1795576145520');
CREATE TABLE open_submissions (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
CREATE TABLE purged_jobs (job INTEGER PRIMARY KEY);
CREATE TABLE resource_events (seq INTEGER PRIMARY KEY, line TEXT NOT NULL);
INSERT INTO "resource_events" VALUES(1,'{"timestamp":1795576145.8503704,"name":"drain","context":{"idset":"1","nodelist":"node1","reason":"fan","overwrite":0}}');
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    identity TEXT NOT NULL,
    generation INTEGER NOT NULL,
    greatest_id INTEGER NOT NULL
);
INSERT INTO "store" VALUES(1,'80e072f04ce2e1b6c56e991d77007197',0,0);
CREATE TABLE submissions (
    seq INTEGER PRIMARY KEY,
    userid INTEGER NOT NULL,
    token TEXT NOT NULL,
    time REAL NOT NULL,
    digest INTEGER NOT NULL,
    result TEXT NOT NULL,
    UNIQUE (userid, token)
);
INSERT INTO "submissions" VALUES(1,0,'bc95f7f10d953e3e57f2815cae38fa40',1.79557614569147586816e+09,2325603920963547072,'{"one":2868903936}');
INSERT INTO "submissions" VALUES(2,0,'bc95f7f10d953e3e57f2815cae38fa41',1.79557614580194425577e+09,-4470787567966762119,'{"copies":[4714397696,2]}');
CREATE TABLE unsent_starts (job INTEGER PRIMARY KEY);
COMMIT;
PRAGMA user_version = 6;
