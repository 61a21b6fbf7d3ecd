#!/bin/sh
# The teams and quotas that go with k8s.toml. People live in the database, not in the file: an administrator runs this
# once, on the real installation or on the one that `danlu up --config examples/clusters/k8s.toml --fake` plays.
set -eu

# A team's quota is what its members may hold together. With borrow=yes, preemptible jobs may take what others leave
# idle, and give it back when it is wanted.
danlu team create nlp
danlu quota set team:nlp gpus=16 borrow=yes
danlu team create cv
danlu quota set team:cv gpus=8 borrow=yes
danlu team create research
danlu quota set team:research gpus=8 gpu_hours=2000 period=month

# Accounts. Each has the quota of [people] default_quota until it gets its own; `danlu passwd USER` sets a password.
danlu user create zengmin --name Sawyer --role admin
danlu user create li --team nlp
danlu user create wang --team nlp --team research
danlu user create zhao --team cv
danlu team leader nlp li
danlu team leader cv zhao
danlu quota set user:wang gpus=4
