PRAGMA foreign_keys = OFF;
BEGIN TRANSACTION;
CREATE TABLE events (
    job INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    lines TEXT NOT NULL,
    PRIMARY KEY (job, seq)
) WITHOUT ROWID;
INSERT INTO "events" VALUES(4647288832,0,'{"timestamp":1795473529.8160377,"name":"submit","context":{"userid":0,"urgency":16,"flags":0,"version":1}}
{"timestamp":1795473529.8160377,"name":"validate"}
{"timestamp":1795473529.8160377,"name":"depend"}
{"timestamp":1795473529.8160377,"name":"priority","context":{"priority":16}}
{"timestamp":1795473529.8344193,"name":"alloc","context":{"annotations":{"sched":{"resource_summary":"rank0/core0"}}}}
{"timestamp":1795473529.834674,"name":"start"}
{"timestamp":1795473529.834674,"name":"finish","context":{"status":0}}
{"timestamp":1795473529.834674,"name":"release","context":{"ranks":"all","final":true}}
{"timestamp":1795473529.834674,"name":"free"}
{"timestamp":1795473529.834674,"name":"clean"}
');
INSERT INTO "events" VALUES(5016387584,0,'{"timestamp":1795473529.8385172,"name":"submit","context":{"userid":0,"urgency":0,"flags":0,"version":1}}
{"timestamp":1795473529.8385172,"name":"validate"}
{"timestamp":1795473529.8385172,"name":"depend"}
{"timestamp":1795473529.8385172,"name":"priority","context":{"priority":0}}
');
INSERT INTO "events" VALUES(5100273664,0,'{"timestamp":1795473529.8439677,"name":"submit","context":{"userid":0,"urgency":16,"flags":0,"version":1}}
{"timestamp":1795473529.8439677,"name":"validate"}
{"timestamp":1795473529.8439677,"name":"depend"}
{"timestamp":1795473529.8439677,"name":"priority","context":{"priority":16}}
{"timestamp":1795473529.844366,"name":"alloc","context":{"annotations":{"sched":{"resource_summary":"rank0/core0"}}}}
{"timestamp":1795473529.844493,"name":"start"}
');
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    userid INTEGER NOT NULL,
    t_submit REAL NOT NULL,
    spec INTEGER NOT NULL REFERENCES jobspecs(id),
    r TEXT
);
INSERT INTO "jobs" VALUES(4647288832,0,1.79547352981603765493e+09,1,'{"version":1,"execution":{"R_lite":[{"rank":"0","children":{"core":"0"}}],"nodelist":["node0"],"starttime":1795473529.8340118,"expiration":0.0,"nslots":1}}');
INSERT INTO "jobs" VALUES(5016387584,0,1.795473529838517189e+09,1,NULL);
INSERT INTO "jobs" VALUES(5100273664,0,1.79547352984396767616e+09,2,'{"version":1,"execution":{"R_lite":[{"rank":"0","children":{"core":"0"}}],"nodelist":["node0"],"starttime":1795473529.8442926,"expiration":1795477129.8442926,"nslots":1}}');
CREATE TABLE jobspecs (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
INSERT INTO "jobspecs" VALUES(1,'{"version":1,"resources":[{"type":"slot","count":1,"with":[{"type":"core","count":1}],"label":"task"}],"tasks":[{"command":["true"],"slot":"task","count":{"per_slot":1}}],"attributes":{"system":{"duration":0.0,"cwd":"/","environment":{}}}}');
INSERT INTO "jobspecs" VALUES(2,'{"version":1,"resources":[{"type":"slot","count":1,"with":[{"type":"core","count":1}],"label":"task"}],"tasks":[{"command":["sleep","3600"],"slot":"task","count":{"per_slot":1}}],"attributes":{"system":{"duration":3600,"cwd":"/","environment":{},"exec":{"test":{"run_duration":"3600s"}}}}}');
CREATE TABLE kvs (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO "kvs" VALUES('site.key',X'31');
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('epoch_ms','1795473529539');
CREATE TABLE open_submissions (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);

CREATE TABLE purged_jobs (job INTEGER PRIMARY KEY);
CREATE TABLE resource_events (seq INTEGER PRIMARY KEY, line TEXT NOT NULL);
INSERT INTO "resource_events" VALUES(1,'{"timestamp":1795473529.861922,"name":"drain","context":{"idset":"1","nodelist":"node1","reason":"fan","overwrite":0}}');
CREATE TABLE store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    identity TEXT NOT NULL,
    generation INTEGER NOT NULL,
    greatest_id INTEGER NOT NULL
);
INSERT INTO "store" VALUES(1,'485a2de6a16035bf15af887651cdcf75',0,0);
CREATE TABLE submissions (
    seq INTEGER PRIMARY KEY,
    userid INTEGER NOT NULL,
    token TEXT NOT NULL,
    time REAL NOT NULL,
    digest INTEGER NOT NULL,
    result TEXT NOT NULL,
    UNIQUE (userid, token)
);
INSERT INTO "submissions" VALUES(1,0,'daced9dafdedfc3b565d344b914b3327',1.79547352981603765493e+09,-2789338032297478228,'{"one":4647288832}');
INSERT INTO "submissions" VALUES(2,0,'4b830c9b000363c3038860e280dbc943',1.795473529838517189e+09,186800619770868055,'{"one":5016387584}');
INSERT INTO "submissions" VALUES(3,0,'7aa1df150ba580f595dcb670441fda8a',1.79547352984396767616e+09,-7571987877097187984,'{"one":5100273664}');
CREATE TABLE unsent_starts (job INTEGER PRIMARY KEY);
COMMIT;
PRAGMA user_version = 3;
