// Package shims finds, kills and reaps shims that containerd has lost, and removes what they leave. It must not touch shims that have a
// container record.
package shims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"monopod/internal/atomicfile"
	"monopod/internal/pause"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/oci"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
)

// An agent or a containerd that is killed between the start of a shim and containerd's note of its address leaves a shim
// that nobody can talk to, and perhaps a container that runc has just made for it.

// shimProcess is what the command line of a shim says.
type shimProcess struct {
	namespace, ID, address string
}

// parseShim reads a command line, with a zero byte after each word; ok says that it is a shim's.
func parseShim(cmdline string) (p shimProcess, ok bool) {
	words := strings.Split(strings.TrimSuffix(cmdline, "\x00"), "\x00")
	if !strings.HasPrefix(filepath.Base(words[0]), shimComm) {
		return shimProcess{}, false
	}
	for i := 1; i+1 < len(words); i++ {
		switch words[i] {
		case "-namespace":
			p.namespace = words[i+1]
		case "-id":
			p.ID = words[i+1]
		case "-address":
			p.address = words[i+1]
		}
	}
	return p, p.ID != ""
}

// shimScans bounds how often the processes are looked through: a shim being started turns into another process.
const shimScans = 10

// Killer finds and kills shims that containerd does not know, and removes what they leave.
type Killer struct {
	Records *record.Store
	Dirs    layout.Dirs
	OCI     *oci.Runtimes
	// Endpoint is that of another containerd; empty: ours is in this process.
	Endpoint, Namespace string
	Log                 *slog.Logger
}

// CleanShims kills shims of our containerd and namespace that have no container record, whoever's, and those of the
// unmade, our own containers whose record is all that containerd has. The record of a container is made before its
// shim and goes after it.
func (r *Killer) CleanShims(ctx context.Context, unmade map[string]bool) error {
	for range shimScans {
		n, err := r.killLostShims(ctx, unmade)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if !pause.For(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	known, err := r.Records.KnownContainers(ctx, unmade)
	if err != nil {
		return err
	}
	return r.CleanRuntime(ctx, known)
}

// killLostShims looks through the processes once and says how many it killed.
func (r *Killer) killLostShims(ctx context.Context, unmade map[string]bool) (int, error) {
	found := r.OwnShims()
	if len(found) == 0 {
		return 0, nil
	}
	known, err := r.Records.KnownContainers(ctx, unmade)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for pid, p := range found {
		if known[p.ID] {
			continue
		}
		n++
		r.Log.Warn("killing a shim that lost its container", "id", p.ID, "pid", pid)
		errs = append(errs, KillShim(pid, p.ID))
	}
	return n, errors.Join(errs...)
}

// KillLostShim kills the shim of a container that was never started and of whose task containerd knows nothing: it ended between the
// start of the shim and its note of the address. Its record goes only after this.
func (r *Killer) KillLostShim(id string) error {
	var errs []error
	for pid, p := range r.OwnShims() {
		if p.ID == id {
			r.Log.Warn("killing a shim that containerd does not know", "id", id, "pid", pid)
			errs = append(errs, KillShim(pid, id))
		}
	}
	return errors.Join(errs...)
}

// OwnShims returns the shims of our containerd and namespace by pid.
func (r *Killer) OwnShims() map[int]shimProcess {
	address := layout.EndpointPath(r.Endpoint)
	if address == "" {
		address = r.Dirs.Path("containerd", "containerd.sock")
	}
	found := map[int]shimProcess{}
	for _, name := range trees.Names("/proc") {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", name, "cmdline"))
		if err != nil {
			continue
		}
		if p, ok := parseShim(string(b)); ok && p.namespace == r.Namespace && p.address == address {
			found[pid] = p
		}
	}
	return found
}

// KillShim kills a shim if the pid is still that of the shim with this id.
func KillShim(pid int, id string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	defer func() { _ = unix.Close(fd) }()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if p, ok := parseShim(string(b)); err != nil || !ok || p.ID != id {
		return nil //nolint:nilerr // it has ended
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill shim %d: %w", pid, err)
	}
	return nil
}

// CleanRuntime deletes containers that only their OCI runtime knows. Its state directory is ours alone.
func (r *Killer) CleanRuntime(ctx context.Context, known map[string]bool) error {
	var errs []error
	for _, rt := range r.OCI.Runtimes() {
		root := filepath.Join(rt.Root, r.Namespace)
		for _, id := range trees.Names(root) {
			if known[id] {
				continue
			}
			out, err := exec.CommandContext(ctx, rt.Path, "--root", root, "delete", "--force", id).CombinedOutput()
			if err != nil {
				errs = append(errs, fmt.Errorf("delete %s: %w: %s", id, err, strings.TrimSpace(string(out))))
			}
		}
	}
	return errors.Join(errs...)
}

// DropDamaged removes the files that keep an OCI runtime from deleting a container whose processes have ended, and says whether there
// were any: what it knows of the container, which then does not exist for it, and its log.
func (r *Killer) DropDamaged(id string) bool {
	dropped := false
	drop := func(path string) {
		if err := trees.Remove(path); err != nil {
			r.Log.Warn("remove a damaged file", "path", path, "err", err)
			return
		}
		dropped = true
	}
	log := r.Dirs.Path("containerd", "io.containerd.runtime.v2.task", r.Namespace, id, "log.json")
	if _, err := atomicfile.Read(log, atomicfile.MaxState); errors.Is(err, atomicfile.ErrDamaged) {
		drop(log)
	}
	for _, rt := range r.OCI.Runtimes() {
		dir := filepath.Join(rt.Root, r.Namespace, id)
		if !trees.ReadableJSON(filepath.Join(dir, "state.json")) {
			drop(dir)
		}
	}
	return dropped
}
