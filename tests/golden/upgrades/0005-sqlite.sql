BEGIN TRANSACTION;
CREATE TABLE account_requests (
	id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	team TEXT NOT NULL, 
	asked_at BIGINT NOT NULL, 
	state TEXT NOT NULL, 
	full_name TEXT NOT NULL, 
	email TEXT NOT NULL, 
	why TEXT NOT NULL, 
	password TEXT NOT NULL, 
	decided_by TEXT NOT NULL, 
	decided_at BIGINT, 
	PRIMARY KEY (id)
);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0005');
CREATE TABLE audit (
	seq INTEGER NOT NULL, 
	at BIGINT NOT NULL, 
	who TEXT NOT NULL, 
	what TEXT NOT NULL, 
	target TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
CREATE TABLE boosts (
	id TEXT NOT NULL, 
	user TEXT NOT NULL, 
	team TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
	why TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	until BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE charges (
	run_id TEXT NOT NULL, 
	user TEXT NOT NULL, 
	team TEXT, 
	queue TEXT, 
	submitted_at BIGINT NOT NULL, 
	started_at BIGINT NOT NULL, 
	ended_at BIGINT NOT NULL, 
	gpus BIGINT NOT NULL, 
	shards BIGINT NOT NULL, 
	shards_per_gpu BIGINT NOT NULL, 
	cpus BIGINT NOT NULL, 
	memory_mib BIGINT NOT NULL, 
	time_limit BIGINT, 
	PRIMARY KEY (run_id)
);
CREATE TABLE environs (
	id TEXT NOT NULL, 
	environ TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "environs" VALUES('63b5d33372f532ec66dfb7f1ae49a0c1','{"PATH":"/usr/bin:/bin","HOME":"/tmp/dl-kz0nim02/sqlite","PYTHONPATH":"/tmp/dl-kz0nim02/code/src","LC_CTYPE":"C.UTF-8"}',1795019608333293);
CREATE TABLE invitations (
	user TEXT NOT NULL, 
	team TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
	invited_at BIGINT NOT NULL, 
	PRIMARY KEY (user, team)
);
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
	version BIGINT NOT NULL, team TEXT, queue TEXT, given_back BIGINT, requeued BIGINT, 
	PRIMARY KEY (seq)
);
INSERT INTO "jobs" VALUES(1,'g8sfvp4r',NULL,NULL,'root','runs',1795019608333293,1,'afefa194532468abe2f4ec5de9fde570','RUNNING','started','running on desk',1,1795019608345152,NULL,NULL,'["desk",1,0,[],null,0]','local:00000000-0000-4000-8000-000000000000:g8sfvp4r.1',NULL,NULL,NULL,3,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(2,'xhb3c7c9',NULL,NULL,'root','finished',1795019608381336,2,'c7360a6a7c978628cd18702a56706494','RUNNING','started','running on desk',1,1795019608389928,NULL,NULL,'["desk",1,0,[],null,0]','local:00000000-0000-4000-8000-000000000000:xhb3c7c9.1',NULL,NULL,NULL,3,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(3,'xgz855n7',NULL,NULL,'root','waits',1795019608433585,3,'4b226ec2fd5eb105aee959cabd622f62','QUEUED','queued','it is to be placed',1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,NULL,NULL,NULL);
CREATE TABLE labels (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	PRIMARY KEY ("key", value, seq)
);
CREATE TABLE members (
	user TEXT NOT NULL, 
	team TEXT NOT NULL, 
	is_leader BIGINT NOT NULL, 
	is_mapped BIGINT NOT NULL, 
	PRIMARY KEY (user, team)
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
CREATE TABLE people (
	name TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	role TEXT NOT NULL, 
	is_enabled BIGINT NOT NULL, 
	full_name TEXT NOT NULL, 
	email TEXT NOT NULL, 
	password TEXT NOT NULL, 
	subject TEXT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE quotas (
	holder TEXT NOT NULL, 
	gpus BIGINT, 
	shards BIGINT, 
	cpus BIGINT, 
	memory_mib BIGINT, 
	jobs BIGINT, 
	gpu_hours BIGINT, 
	period TEXT NOT NULL, 
	borrow BIGINT NOT NULL, 
	PRIMARY KEY (holder)
);
CREATE TABLE specs (
	id INTEGER NOT NULL, 
	spec TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "specs" VALUES(1,'{"command":["sleep","600"],"workdir":"/","ask":{"gpus":0,"gpu_model":null,"shards":0,"cpus":1,"memory_mib":0,"nodes":1},"name":"runs","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],"labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":"63b5d33372f532ec66dfb7f1ae49a0c1","team":"","queue":"","is_preemptible":false,"is_interactive":false}');
INSERT INTO "specs" VALUES(2,'{"command":["sh","-c","while [ ! -e /tmp/dl-kz0nim02/sqlite/door ]; do sleep 0.05; done; exit 7"],"workdir":"/","ask":{"gpus":0,"gpu_model":null,"shards":0,"cpus":1,"memory_mib":0,"nodes":1},"name":"finished","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],"labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":"63b5d33372f532ec66dfb7f1ae49a0c1","team":"","queue":"","is_preemptible":false,"is_interactive":false}');
INSERT INTO "specs" VALUES(3,'{"command":["sh","-c","echo upgraded"],"workdir":"/","ask":{"gpus":0,"gpu_model":null,"shards":0,"cpus":2,"memory_mib":0,"nodes":1},"name":"waits","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],"labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":"63b5d33372f532ec66dfb7f1ae49a0c1","team":"","queue":"","is_preemptible":false,"is_interactive":false}');
CREATE TABLE teams (
	name TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
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
CREATE INDEX jobs_by_team_state ON jobs (team, state, seq) WHERE team IS NOT NULL;
CREATE INDEX charges_by_end ON charges (ended_at);
CREATE INDEX charges_of_gpus ON charges (ended_at) WHERE gpus + shards > 0;
CREATE INDEX charges_by_user ON charges (user, ended_at);
CREATE INDEX charges_by_team ON charges (team, ended_at) WHERE team IS NOT NULL;
CREATE INDEX audit_by_who ON audit (who, what, seq);
CREATE INDEX audit_by_what ON audit (what, seq);
CREATE INDEX audit_by_target ON audit (target, seq);
COMMIT;
