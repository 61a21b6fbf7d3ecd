BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE environs (
	id TEXT NOT NULL, 
	environ TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "environs" VALUES('e26450053eba225661e2203cfbd9d81c','{"PATH":"/usr/bin:/bin","HOME":"/tmp/dl-erv5s_jg/sqlite","PYTHONPATH":"/tmp/dl-erv5s_jg/code/src","LC_CTYPE":"C.UTF-8"}',1795019571745109);
CREATE TABLE jobs (
	seq INTEGER NOT NULL, 
	id TEXT NOT NULL, 
	array_id TEXT, 
	array_index BIGINT, 
	user TEXT NOT NULL, 
	name TEXT, 
	submitted_at BIGINT NOT NULL, 
	spec_id BIGINT NOT NULL, 
	submit_key TEXT, 
	state TEXT NOT NULL, 
	reason_code TEXT NOT NULL, 
	reason_text TEXT NOT NULL, 
	attempt BIGINT NOT NULL, 
	started_at BIGINT, 
	ended_at BIGINT, 
	exit_code BIGINT, 
	seat TEXT, 
	handle TEXT, 
	waiting_for TEXT, 
	stop_requested_at BIGINT, 
	notes TEXT, 
	version BIGINT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "jobs" VALUES(1,'wqqs44xc',NULL,NULL,'root','runs',1795019571745109,1,'311f85a6686b9eb95316001dd0e42e1d','RUNNING','started','running on desk',1,1795019571756060,NULL,NULL,'["desk",1,0,[],null,0]','local:00000000-0000-4000-8000-000000000000:wqqs44xc.1',NULL,NULL,NULL,3);
INSERT INTO "jobs" VALUES(2,'p4bz4c77',NULL,NULL,'root','finished',1795019571778146,2,'b9d304a00930898355a06b0a70b4a2e9','RUNNING','started','running on desk',1,1795019571792479,NULL,NULL,'["desk",1,0,[],null,0]','local:00000000-0000-4000-8000-000000000000:p4bz4c77.1',NULL,NULL,NULL,3);
INSERT INTO "jobs" VALUES(3,'v6sk48z4',NULL,NULL,'root','waits',1795019571812939,3,'c00dea7aff7b5c68bb30967aeb90cb68','QUEUED','queued','waits to be placed',1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1);
CREATE TABLE labels (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	PRIMARY KEY ("key", value, seq)
);
CREATE TABLE past_runs (
	job_id TEXT NOT NULL, 
	attempt BIGINT NOT NULL, 
	state TEXT NOT NULL, 
	reason_code TEXT NOT NULL, 
	reason_text TEXT NOT NULL, 
	started_at BIGINT, 
	ended_at BIGINT NOT NULL, 
	exit_code BIGINT, 
	node TEXT NOT NULL, 
	PRIMARY KEY (job_id, attempt)
);
CREATE TABLE specs (
	id INTEGER NOT NULL, 
	spec TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "specs" VALUES(1,'{"command":["sleep","600"],"workdir":"/","ask":{"gpus":0,"gpu_model":null,"shards":0,"cpus":1,"memory_mib":0,"nodes":1},"name":"runs","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],"labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":"e26450053eba225661e2203cfbd9d81c","team":"","queue":"","is_preemptible":false,"is_interactive":false}');
INSERT INTO "specs" VALUES(2,'{"command":["sh","-c","while [ ! -e /tmp/dl-erv5s_jg/sqlite/door ]; do sleep 0.05; done; exit 7"],"workdir":"/","ask":{"gpus":0,"gpu_model":null,"shards":0,"cpus":1,"memory_mib":0,"nodes":1},"name":"finished","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],"labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":"e26450053eba225661e2203cfbd9d81c","team":"","queue":"","is_preemptible":false,"is_interactive":false}');
INSERT INTO "specs" VALUES(3,'{"command":["sh","-c","echo upgraded"],"workdir":"/","ask":{"gpus":0,"gpu_model":null,"shards":0,"cpus":2,"memory_mib":0,"nodes":1},"name":"waits","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],"labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":"e26450053eba225661e2203cfbd9d81c","team":"","queue":"","is_preemptible":false,"is_interactive":false}');
CREATE TABLE tokens (
	id TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	user TEXT NOT NULL, 
	role TEXT NOT NULL, 
	name TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT, 
	PRIMARY KEY (id)
);
CREATE UNIQUE INDEX jobs_by_id ON jobs (id);
CREATE INDEX jobs_by_state ON jobs (state, seq);
CREATE INDEX jobs_by_user ON jobs (user, seq);
CREATE INDEX jobs_by_user_state ON jobs (user, state, seq);
CREATE INDEX jobs_by_name ON jobs (name, seq) WHERE name IS NOT NULL;
CREATE INDEX jobs_by_user_name ON jobs (user, name, seq) WHERE name IS NOT NULL;
CREATE INDEX jobs_by_array ON jobs (array_id, seq) WHERE array_id IS NOT NULL;
CREATE INDEX jobs_by_key ON jobs (user, submit_key, seq) WHERE submit_key IS NOT NULL;
CREATE INDEX labels_by_seq ON labels (seq);
CREATE UNIQUE INDEX tokens_by_digest ON tokens (digest);
COMMIT;
