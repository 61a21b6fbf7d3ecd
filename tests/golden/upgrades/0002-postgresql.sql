CREATE TABLE public.account_requests (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    team text NOT NULL COLLATE pg_catalog."C",
    asked_at bigint NOT NULL,
    state text NOT NULL COLLATE pg_catalog."C",
    full_name text NOT NULL COLLATE pg_catalog."C",
    email text NOT NULL COLLATE pg_catalog."C",
    why text NOT NULL COLLATE pg_catalog."C",
    password text NOT NULL COLLATE pg_catalog."C",
    decided_by text NOT NULL COLLATE pg_catalog."C",
    decided_at bigint
);
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.audit (
    seq bigint NOT NULL,
    at bigint NOT NULL,
    who text NOT NULL COLLATE pg_catalog."C",
    what text NOT NULL COLLATE pg_catalog."C",
    target text NOT NULL COLLATE pg_catalog."C",
    detail text NOT NULL COLLATE pg_catalog."C",
    origin text NOT NULL COLLATE pg_catalog."C"
);
CREATE SEQUENCE public.audit_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.audit_seq_seq OWNED BY public.audit.seq;
CREATE TABLE public.boosts (
    id text NOT NULL COLLATE pg_catalog."C",
    "user" text NOT NULL COLLATE pg_catalog."C",
    team text NOT NULL COLLATE pg_catalog."C",
    by text NOT NULL COLLATE pg_catalog."C",
    why text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    until bigint NOT NULL
);
CREATE TABLE public.charges (
    run_id text NOT NULL COLLATE pg_catalog."C",
    "user" text NOT NULL COLLATE pg_catalog."C",
    team text COLLATE pg_catalog."C",
    queue text COLLATE pg_catalog."C",
    submitted_at bigint NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    gpus bigint NOT NULL,
    shards bigint NOT NULL,
    shards_per_gpu bigint NOT NULL,
    cpus bigint NOT NULL,
    memory_mib bigint NOT NULL,
    time_limit bigint
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
    version bigint NOT NULL,
    team text COLLATE pg_catalog."C",
    queue text COLLATE pg_catalog."C",
    given_back bigint
);
CREATE TABLE public.labels (
    key text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL
);
CREATE TABLE public.members (
    "user" text NOT NULL COLLATE pg_catalog."C",
    team text NOT NULL COLLATE pg_catalog."C",
    is_leader bigint NOT NULL,
    is_mapped bigint NOT NULL
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
CREATE TABLE public.people (
    name text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    role text NOT NULL COLLATE pg_catalog."C",
    is_enabled bigint NOT NULL,
    full_name text NOT NULL COLLATE pg_catalog."C",
    email text NOT NULL COLLATE pg_catalog."C",
    password text NOT NULL COLLATE pg_catalog."C",
    subject text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.quotas (
    holder text NOT NULL COLLATE pg_catalog."C",
    gpus bigint,
    shards bigint,
    cpus bigint,
    memory_mib bigint,
    jobs bigint,
    gpu_hours bigint,
    period text NOT NULL COLLATE pg_catalog."C",
    borrow bigint NOT NULL
);
CREATE TABLE public.specs (
    id bigint NOT NULL,
    spec text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.teams (
    name text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL
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
ALTER TABLE ONLY public.audit ALTER COLUMN seq SET DEFAULT nextval('public.audit_seq_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('0002');
INSERT INTO public.environs VALUES ('0329727261092f830fa4df44b5d77a9d', '{"PATH":"/usr/bin:/bin","HOME":"/tmp/dl-8dm27h90/postgresql","PYTHONPATH":"/tmp/dl-8dm27h90/code/src","LC_CTYPE":"C.UTF-8"}', 1795019587264226);
INSERT INTO public.jobs VALUES (1, 'zb5md546', NULL, NULL, 'root', 'runs', 1795019587264226, 1, '12b4a0acb643c7042d725fda4a715f32', 'RUNNING', 'started', 'running on desk', 1, 1795019587272979, NULL, NULL, '["desk",1,0,[],null,0]', 'local:00000000-0000-4000-8000-000000000000:zb5md546.1', NULL, NULL, NULL, 3, NULL, NULL, NULL);
INSERT INTO public.jobs VALUES (2, 'ckm8f7hb', NULL, NULL, 'root', 'finished', 1795019587314086, 2, '58ac2022848d1e249e9893f6ad65e7bd', 'RUNNING', 'started', 'running on desk', 1, 1795019587335960, NULL, NULL, '["desk",1,0,[],null,0]', 'local:00000000-0000-4000-8000-000000000000:ckm8f7hb.1', NULL, NULL, NULL, 3, NULL, NULL, NULL);
INSERT INTO public.jobs VALUES (3, 'hndbmkxg', NULL, NULL, 'root', 'waits', 1795019587358396, 3, 'b8472e838c2383ad951d60a5d367fb82', 'QUEUED', 'queued', 'waits to be placed', 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1, NULL, NULL, NULL);
INSERT INTO public.specs VALUES (1, '{"command":["sleep","600"],"workdir":"/","ask":{"gpus":0,"gpu_model":null,"shards":0,"cpus":1,"memory_mib":0,"nodes":1},"name":"runs","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],"labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":"0329727261092f830fa4df44b5d77a9d","team":"","queue":"","is_preemptible":false,"is_interactive":false}');
INSERT INTO public.specs VALUES (2, '{"command":["sh","-c","while [ ! -e /tmp/dl-8dm27h90/postgresql/door ]; do sleep 0.05; done; exit 7"],"workdir":"/","ask":{"gpus":0,"gpu_model":null,"shards":0,"cpus":1,"memory_mib":0,"nodes":1},"name":"finished","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],"labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":"0329727261092f830fa4df44b5d77a9d","team":"","queue":"","is_preemptible":false,"is_interactive":false}');
INSERT INTO public.specs VALUES (3, '{"command":["sh","-c","echo upgraded"],"workdir":"/","ask":{"gpus":0,"gpu_model":null,"shards":0,"cpus":2,"memory_mib":0,"nodes":1},"name":"waits","priority":5,"time_limit":null,"notice":null,"retries":0,"env":[],"labels":[],"after":[],"array":"","at_once":null,"snapshot":"","umask":18,"environ":"0329727261092f830fa4df44b5d77a9d","team":"","queue":"","is_preemptible":false,"is_interactive":false}');
SELECT pg_catalog.setval('public.audit_seq_seq', 1, false);
ALTER TABLE ONLY public.account_requests
    ADD CONSTRAINT account_requests_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.boosts
    ADD CONSTRAINT boosts_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.charges
    ADD CONSTRAINT charges_pkey PRIMARY KEY (run_id);
ALTER TABLE ONLY public.environs
    ADD CONSTRAINT environs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.labels
    ADD CONSTRAINT labels_pkey PRIMARY KEY (key, value, seq);
ALTER TABLE ONLY public.members
    ADD CONSTRAINT members_pkey PRIMARY KEY ("user", team);
ALTER TABLE ONLY public.past_runs
    ADD CONSTRAINT past_runs_pkey PRIMARY KEY (job_id, attempt);
ALTER TABLE ONLY public.people
    ADD CONSTRAINT people_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.quotas
    ADD CONSTRAINT quotas_pkey PRIMARY KEY (holder);
ALTER TABLE ONLY public.specs
    ADD CONSTRAINT specs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.teams
    ADD CONSTRAINT teams_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (id);
CREATE INDEX audit_by_at ON public.audit USING btree (at);
CREATE INDEX charges_by_end ON public.charges USING btree (ended_at);
CREATE INDEX charges_by_team ON public.charges USING btree (team, ended_at) WHERE (team IS NOT NULL);
CREATE INDEX charges_by_user ON public.charges USING btree ("user", ended_at);
CREATE INDEX charges_of_gpus ON public.charges USING btree (ended_at) WHERE ((gpus + shards) > 0);
CREATE INDEX jobs_by_array ON public.jobs USING btree (array_id, seq) WHERE (array_id IS NOT NULL);
CREATE UNIQUE INDEX jobs_by_id ON public.jobs USING btree (id);
CREATE INDEX jobs_by_key ON public.jobs USING btree ("user", submit_key, seq) WHERE (submit_key IS NOT NULL);
CREATE INDEX jobs_by_name ON public.jobs USING btree (name, seq) WHERE (name IS NOT NULL);
CREATE INDEX jobs_by_state ON public.jobs USING btree (state, seq);
CREATE INDEX jobs_by_team_state ON public.jobs USING btree (team, state, seq) WHERE (team IS NOT NULL);
CREATE INDEX jobs_by_user ON public.jobs USING btree ("user", seq);
CREATE INDEX jobs_by_user_name ON public.jobs USING btree ("user", name, seq) WHERE (name IS NOT NULL);
CREATE INDEX jobs_by_user_state ON public.jobs USING btree ("user", state, seq);
CREATE INDEX labels_by_seq ON public.labels USING btree (seq);
CREATE UNIQUE INDEX tokens_by_digest ON public.tokens USING btree (digest);
