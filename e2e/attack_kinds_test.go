//go:build e2e

package e2e

// fileKind describes a kind of file that monopod, its shims and the containerd inside it write and read again.
type fileKind struct {
	// owner is the package, or the program, that writes it.
	owner string
	// durable is set if it is synced when it is written; the others may be missing or damaged after a power cut.
	durable bool
	// damaged is the consequence of damage.
	damaged string
	// skip is set if TestAttackDamagedFiles does not damage it: it does not exist, or the tests of its package damage it.
	skip bool
}

// Consequences of damage.
const (
	nothing      = "nothing: it is made again"
	itself       = "what was in it: nothing else depends on it"
	restart      = "its container a restart, at most"
	remade       = "its pod a restart, at most"
	reportedOnly = "what it says: it is reported, and used again when it is right"
)

// fileKinds are all kinds of files, by pattern: {id} is a container, a sandbox or a digest. A file of an unlisted kind fails
// TestAttackDamagedFiles.
func fileKinds() map[string]fileKind {
	const task, pause = "state/containerd/io.containerd.runtime.v2.task/monopod/{id}/", "state/pause/{id}/"
	return map[string]fileKind{
		// Files of one container.
		"state/logs/{id}/meta.json":                  {"runner/ctrd/logs", true, "nothing: the record of the container says the same", false},
		"state/logs/{id}/journal":                    {"runner/ctrd/logs", false, "lines of its output", false},
		"state/logs/{id}/stdout":                     {"runner/ctrd/logs", false, "its output until it restarts", false},
		"state/logs/{id}/stderr":                     {"runner/ctrd/logs", false, "its output until it restarts", false},
		"state/logs/{id}/stdin":                      {"runner/ctrd/logs", false, "its input until it restarts", true},
		"state/logs/{id}/stdout.spool":               {"runner/ctrd/logs", false, "lines of its output", false},
		"state/logs/{id}/stderr.spool":               {"runner/ctrd/logs", false, "lines of its output", false},
		"state/exits/{id}.json":                      {"runner/ctrd/shim", false, "its exit code: 255, Unknown", true},
		"state/runc/monopod/{id}/state.json":         {"runc", false, restart, false},
		task + "bootstrap.json":                      {"containerd", false, restart, false},
		task + "config.json":                         {"containerd", false, restart, false},
		task + "config.json.plain":                   {"runner/ctrd/shim", false, restart, true},
		task + "init.pid":                            {"runner/ctrd/shim", false, restart, false},
		task + "log":                                 {"runner/ctrd/shim", false, nothing, false},
		task + "log.json":                            {"runc", false, nothing, false},
		task + "options.json":                        {"containerd", false, restart, false},
		task + "runtime":                             {"runner/ctrd/shim", false, restart, false},
		task + "exit.json":                           {"containerd's shim", false, restart, true},
		task + "s":                                   {"runner/ctrd/shim", false, restart, false},
		task + "shim-binary-path":                    {"containerd", false, restart, false},
		task + "work":                                {"containerd", false, nothing, false},
		task + "address":                             {"containerd", false, restart, true},
		task + "deleted":                             {"runner/ctrd/shim", false, nothing, true},
		"state/secrets/process/{id}":                 {"runner/ctrd/shim", false, restart, true},
		"state/secrets/process/{id}.config":          {"runner/ctrd/shim", false, restart, true},
		"logs/containers/{pod}_default_c-{id}.log":   {"runner/ctrd/logs", false, nothing, false},
		"logs/pods/default_{pod}_{uid}/c/{n}.log":    {"runner/ctrd/logs", false, "lines of its output", false},
		"logs/pods/default_{pod}_{uid}/c/{n}.log.gz": {"runner/ctrd/logs", true, "lines of its output", true},

		// Files of one pod.
		pause + "config.json":                    {"runner/ctrd", false, remade, false},
		pause + "pid":                            {"runner/ctrd", false, remade, false},
		pause + "runtime":                        {"runner/ctrd", false, nothing, false},
		pause + "rootfs/pause":                   {"runner/ctrd", false, nothing, false},
		"state/pause-runc/{id}/state.json":       {"runc", false, remade, false},
		"root/pods/{uid}/claims/victim":          {"runner/ctrd", true, "nothing: the book of claims says the same", false},
		"root/pods/{uid}/fsgroup/claim":          {"runner/ctrd", false, nothing, false},
		"root/pods/{uid}/iscsi/{volume}":         {"runner/ctrd/remote", true, "the session is not ended with the pod", true},
		"logs/pods/default_{pod}_{uid}/.monopod": {"runner/ctrd", false, nothing, false},
		"root/revisions/default/{pod}/state":     {"rollout", true, "its history", false},
		"root/applied/pod.default.applied.yaml":  {"watcher/applied", true, reportedOnly, false},
		"root/cni/networks/monopod/{ip}":         {"host-local", false, "its address is not released", false},
		"root/cni/results/monopod-{id}-eth0":     {"libcni", false, nothing, false},

		// Files of the agent.
		"root/shutdown.json":                           {"runner/ctrd", true, "images are verified before use", false},
		"root/drain.json":                              {"node/drain", true, "that the machine is drained", false},
		"root/graceful_node_shutdown_state":            {"cmd/monopod", true, nothing, true},
		"root/workloads.json":                          {"workload", true, "which Jobs are done", true},
		"root/workloads-history.json":                  {"workload", true, "earlier revisions of workloads", true},
		"root/reserve":                                 {"runner/ctrd", true, nothing, false},
		"root/events/events.log":                       {"events", true, itself, false},
		"root/events/events.old":                       {"events", true, itself, true},
		"root/volumes/bindings.json":                   {"runner/ctrd/claims", true, "nothing: directories of claims are found again", false},
		"root/applied/.change":                         {"watcher/applied", true, "what remained of one change by apply: it is set aside and reported", true},
		"root/sources/{source}/answer":                 {"watcher", true, "pods of that source, after a boot without it", true},
		"root/sources/{source}/answer.stale":           {"watcher", false, "the same", true},
		"root/sources/{source}/version":                {"watcher", true, "the version of the answer counts", true},
		"root/pki/{certificate}":                       {"node/secure, node/apiserver", true, nothing, true},
		"root/cni/networks/monopod/last_reserved_ip.0": {"host-local", false, nothing, false},
		"root/cni/networks/monopod/lock":               {"host-local", false, nothing, false},
		"state/cni/10-monopod.conflist":                {"runner/ctrd/network", true, nothing, false},
		"root/monopod.pid":                             {"cmd/monopod", false, nothing, false},
		"state/monopod.pid":                            {"cmd/monopod", false, nothing, false},
		"root-runs/{n}/run.yaml":                       {"cmd/monopod", true, "`monopod up` of that run", true},
		"bin/{version}":                                {"internal/bundle", true, nothing, true},

		// Files of the embedded containerd. See TestAttackDatabases for the first two.
		"root/containerd/io.containerd.metadata.v1.bolt/meta.db":             {"containerd", true, "nothing: there is a copy", false},
		"root/containerd/io.containerd.snapshotter.v1.overlayfs/metadata.db": {"containerd", true, "nothing: there is a copy", false},
		"root/containerd/io.containerd.content.v1.content/blobs/sha256/{id}": {"containerd", true, "its image, until it is imported or pulled again", true},
		"root/containerd/backup/meta.db":                                     {"runner/ctrd/embed/guard", true, nothing, false},
		"root/containerd/backup/metadata.db":                                 {"runner/ctrd/embed/guard", true, nothing, false},
		"state/containerd/mirror/{uid}/meta.db":                              {"runner/ctrd/embed/guard", false, nothing, false},
		"state/containerd/mirror/{uid}/metadata.db":                          {"runner/ctrd/embed/guard", false, nothing, false},
		"root/containerd/backup/meta.db.new":                                 {"runner/ctrd/embed/guard", false, nothing, true},
		"root/containerd/backup/metadata.db.new":                             {"runner/ctrd/embed/guard", false, nothing, true},
		"state/containerd/mirror/{uid}/meta.db.new":                          {"runner/ctrd/embed/guard", false, nothing, true},
		"state/containerd/mirror/{uid}/metadata.db.new":                      {"runner/ctrd/embed/guard", false, nothing, true},
		"root/containerd/monopod.lock":                                       {"runner/ctrd/embed", false, nothing, false},
		"state/containerd/monopod.lock":                                      {"runner/ctrd/embed", false, nothing, false},
	}
}
