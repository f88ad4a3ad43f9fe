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
INSERT INTO "common_events" VALUES(0,1157627904,1157627905,0.0,'{"timestamp":1795936666.7265716,"name":"submit","context":{"userid":1000,"urgency":0,"flags":0,"version":1}}
{"timestamp":1795936666.7265725,"name":"validate"}
{"timestamp":1795936666.7265735,"name":"depend"}
{"timestamp":1795936666.7265744,"name":"priority","context":{"priority":0}}
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
INSERT INTO "events" VALUES(721420288,0,'{"timestamp":1795936666.7001097,"name":"submit","context":{"userid":0,"urgency":16,"flags":0,"version":1}}
{"timestamp":1795936666.7001107,"name":"validate"}
{"timestamp":1795936666.7001116,"name":"depend"}
{"timestamp":1795936666.7001126,"name":"priority","context":{"priority":16}}
');
INSERT INTO "events" VALUES(721420288,4,'{"timestamp":1795936666.7001135,"name":"alloc","context":{"annotations":{"sched":{"resource_summary":"rank0/core0"}}}}
{"timestamp":1795936666.7001145,"name":"start"}
{"timestamp":1795936666.7001154,"name":"finish","context":{"status":0}}
{"timestamp":1795936666.7001164,"name":"release","context":{"ranks":"all","final":true}}
{"timestamp":1795936666.7001173,"name":"free"}
{"timestamp":1795936666.7001183,"name":"clean"}
');
CREATE TABLE inputs (
    job INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    line TEXT NOT NULL,
    PRIMARY KEY (job, seq)
) WITHOUT ROWID;
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    userid INTEGER NOT NULL,
    t_submit REAL NOT NULL,
    spec INTEGER NOT NULL REFERENCES jobspecs(id),
    r TEXT
, bytes INTEGER NOT NULL DEFAULT 0);
INSERT INTO "jobs" VALUES(721420288,0,1.79593666670010972024e+09,1,'{"version":1,"execution":{"R_lite":[{"rank":"0","children":{"core":"0"}}],"nodelist":["node0"],"starttime":1795936666.7001097,"expiration":0.0,"nslots":1}}',0);
INSERT INTO "jobs" VALUES(1157627904,1000,1.7959366667265715599e+09,2,NULL,0);
INSERT INTO "jobs" VALUES(1157627905,1000,1.7959366667265715599e+09,2,NULL,0);
CREATE TABLE jobspecs (id INTEGER PRIMARY KEY, text TEXT NOT NULL, userid INTEGER);
INSERT INTO "jobspecs" VALUES(1,'{"version":1,"resources":[{"type":"slot","count":1,"with":[{"type":"core","count":1}],"label":"task"}],"tasks":[{"command":["true"],"slot":"task","count":{"per_slot":1}}],"attributes":{"system":{"duration":0.0,"cwd":"/","environment":{}}}}',0);
INSERT INTO "jobspecs" VALUES(2,'{"version":1,"resources":[{"type":"slot","count":1,"with":[{"type":"core","count":1}],"label":"task"}],"tasks":[{"command":["sleep"],"slot":"task","count":{"per_slot":1}}],"attributes":{"system":{"duration":0.0,"cwd":"/","environment":{}}}}',1000);
CREATE TABLE kvs (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO "kvs" VALUES('site.key',X'31');
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('epoch_ms','1795936666657');
CREATE TABLE open_submissions (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
CREATE TABLE purged_jobs (job INTEGER PRIMARY KEY);
CREATE TABLE resource_events (seq INTEGER PRIMARY KEY, line TEXT NOT NULL);
INSERT INTO "resource_events" VALUES(1,'{"timestamp":1795936666.7272186,"name":"drain","context":{"idset":"1","nodelist":"node1","reason":"fan","overwrite":0}}');
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    identity TEXT NOT NULL,
    generation INTEGER NOT NULL,
    greatest_id INTEGER NOT NULL
);
INSERT INTO "store" VALUES(1,'87b422b7c28c952276c4dd6ddc5ca9ac',0,0);
CREATE TABLE submissions (
    seq INTEGER PRIMARY KEY,
    userid INTEGER NOT NULL,
    token TEXT NOT NULL,
    time REAL NOT NULL,
    digest INTEGER NOT NULL,
    result TEXT NOT NULL,
    UNIQUE (userid, token)
);
INSERT INTO "submissions" VALUES(1,0,'ebf270c5a69b8a960db59e0c60336f34',1.79593666670010972024e+09,6239390110353433969,'{"one":721420288}');
INSERT INTO "submissions" VALUES(2,1000,'ebf270c5a69b8a960db59e0c60336f35',1.7959366667265715599e+09,6896659753223140280,'{"copies":[1157627904,2]}');
CREATE TABLE unsent_starts (job INTEGER PRIMARY KEY);
CREATE TABLE user_bytes (userid INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
INSERT INTO "user_bytes" VALUES(0,2528);
INSERT INTO "user_bytes" VALUES(1000,4585);
CREATE INDEX submissions_by_time ON submissions (time);
COMMIT;
PRAGMA user_version = 12;
