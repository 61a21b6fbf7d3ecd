CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.environs (
    id text NOT NULL COLLATE pg_catalog."C",
    environ text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL
);
CREATE TABLE public.jobs (
    seq bigint NOT NULL,
    id text NOT NULL COLLATE pg_catalog."C",
    array_id text COLLATE pg_catalog."C",
    array_index bigint,
    "user" text NOT NULL COLLATE pg_catalog."C",
    name text COLLATE pg_catalog."C",
    submitted_at bigint NOT NULL,
    spec_id bigint NOT NULL,
    submit_key text COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    reason_code text NOT NULL COLLATE pg_catalog."C",
    reason_text text NOT NULL COLLATE pg_catalog."C",
    attempt bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    exit_code bigint,
    seat text COLLATE pg_catalog."C",
    handle text COLLATE pg_catalog."C",
    waiting_for text COLLATE pg_catalog."C",
    stop_requested_at bigint,
    notes text COLLATE pg_catalog."C",
    version bigint NOT NULL
);
CREATE TABLE public.labels (
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL
);
CREATE TABLE public.past_runs (
    job_id text NOT NULL COLLATE pg_catalog."C",
    attempt bigint NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    reason_code text NOT NULL COLLATE pg_catalog."C",
    reason_text text NOT NULL COLLATE pg_catalog."C",
    started_at bigint,
    ended_at bigint NOT NULL,
    exit_code bigint,
    node text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.specs (
    id bigint NOT NULL,
    spec text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.tokens (
    id text NOT NULL COLLATE pg_catalog."C",
    digest text NOT NULL COLLATE pg_catalog."C",
    "user" text NOT NULL COLLATE pg_catalog."C",
    role text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    expires_at bigint
);
INSERT INTO public.alembic_version VALUES ('0001');
INSERT INTO public.environs VALUES ('c01b14d5ca1b8713d12ff3edb769a143', '{"PATH":"/usr/bin:/bin","HOME":"/tmp/dl-erv5s_jg/postgresql","PYTHONPATH":"/tmp/dl-erv5s_jg/code/src","LC_CTYPE":"C.UTF-8"}', 1795019579093935);
INSERT INTO public.jobs VALUES (1, 'tzsv9c9m', NULL, NULL, 'root', 'runs', 1795019579093935, 1, 'e7a0d47e47e4fe2bf7073896ebc7d34b', 'RUNNING', 'started', 'running on desk', 1, 1795019579117244, NULL, NULL, '["desk",1,0,[],null,0]', 'local:00000000-0000-4000-8000-000000000000:tzsv9c9m.1', NULL, NULL, NULL, 3);
INSERT INTO public.jobs VALUES (2, 'wf8xf9rf', NULL, NULL, 'root', 'finished', 1795019579181517, 2, '616a1223fbcc3a0ca427645cbefc5d80', 'RUNNING', 'started', 'running on desk', 1, 1795019579203554, NULL, NULL, '["desk",1,0,[],null,0]', 'local:00000000-0000-4000-8000-000000000000:wf8xf9rf.1', NULL, NULL, NULL, 3);
INSERT INTO public.jobs VALUES (3, 'kxmthjph', NULL, NULL, 'root', 'waits', 1795019579241340, 3, '1171291652fba1c34a74a0058ac06ebf', 'QUEUED', 'queued', 'waits to be placed', 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1);
INSERT INTO public.specs VALUES (1, '{"command":["sleep","600"],"workdir":"/","ask":{"gpus":0,"gpu_model":null,"shards":0,"cpus":1,"memory_mib":0,"nodes":1},"name":"runs","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],"labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":"c01b14d5ca1b8713d12ff3edb769a143","team":"","queue":"","is_preemptible":false,"is_interactive":false}');
INSERT INTO public.specs VALUES (2, '{"command":["sh","-c","while [ ! -e /tmp/dl-erv5s_jg/postgresql/door ]; do sleep 0.05; done; exit 7"],"workdir":"/","ask":{"gpus":0,"gpu_model":null,"shards":0,"cpus":1,"memory_mib":0,"nodes":1},"name":"finished","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],"labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":"c01b14d5ca1b8713d12ff3edb769a143","team":"","queue":"","is_preemptible":false,"is_interactive":false}');
INSERT INTO public.specs VALUES (3, '{"command":["sh","-c","echo upgraded"],"workdir":"/","ask":{"gpus":0,"gpu_model":null,"shards":0,"cpus":2,"memory_mib":0,"nodes":1},"name":"waits","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],"labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":"c01b14d5ca1b8713d12ff3edb769a143","team":"","queue":"","is_preemptible":false,"is_interactive":false}');
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.environs
    ADD CONSTRAINT environs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.labels
    ADD CONSTRAINT labels_pkey PRIMARY KEY (key, value, seq);
ALTER TABLE ONLY public.past_runs
    ADD CONSTRAINT past_runs_pkey PRIMARY KEY (job_id, attempt);
ALTER TABLE ONLY public.specs
    ADD CONSTRAINT specs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (id);
CREATE INDEX jobs_by_array ON public.jobs USING btree (array_id, seq) WHERE (array_id IS NOT NULL);
CREATE UNIQUE INDEX jobs_by_id ON public.jobs USING btree (id);
CREATE INDEX jobs_by_key ON public.jobs USING btree ("user", submit_key, seq) WHERE (submit_key IS NOT NULL);
CREATE INDEX jobs_by_name ON public.jobs USING btree (name, seq) WHERE (name IS NOT NULL);
CREATE INDEX jobs_by_state ON public.jobs USING btree (state, seq);
CREATE INDEX jobs_by_user ON public.jobs USING btree ("user", seq);
CREATE INDEX jobs_by_user_name ON public.jobs USING btree ("user", name, seq) WHERE (name IS NOT NULL);
CREATE INDEX jobs_by_user_state ON public.jobs USING btree ("user", state, seq);
CREATE INDEX labels_by_seq ON public.labels USING btree (seq);
CREATE UNIQUE INDEX tokens_by_digest ON public.tokens USING btree (digest);
