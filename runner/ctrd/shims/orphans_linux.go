// Package shims finds, kills and reaps shims that containerd has lost, and removes their leftovers. It must not touch shims that
// have a container record.
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

// If the agent or containerd is killed between the start of a shim and the moment when containerd stores its address, the shim
// cannot be reached by any client, and runc may just have created a container for it.

// shimProcess is the parsed command line of a shim.
type shimProcess struct {
	namespace, ID, address string
}

// parseShim parses a command line, with a zero byte after each word; ok is false if it is not that of a shim.
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

// shimScans limits how often the process list is read: a shim that is being started turns into another process.
const shimScans = 10

// Killer finds and kills shims that containerd does not know, and removes their leftovers.
type Killer struct {
	Records *record.Store
	Dirs    layout.Dirs
	OCI     *oci.Runtimes
	// Endpoint is that of an external containerd; empty: containerd runs in this process.
	Endpoint, Namespace string
	Log                 *slog.Logger
}

// CleanShims kills shims of our containerd and namespace that have no container record, and those of unmade, our own containers
// without a task. The record of a container is created before its shim and deleted after it.
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

// killLostShims reads the process list once and returns how many shims it killed.
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
		r.Log.Warn("killing a shim without a container", "id", p.ID, "pid", pid)
		errs = append(errs, KillShim(pid, p.ID))
	}
	return n, errors.Join(errs...)
}

// KillLostShim kills the shim of a container that was never started and without a task in containerd, which ended before it stored
// the address of the shim. The record is deleted after that.
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

// KillShim kills a shim if the pid still belongs to the shim with this id.
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

// CleanRuntime deletes containers that only their OCI runtime knows. Its state directory belongs to this instance alone.
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

// DropDamaged removes damaged files that keep an OCI runtime from deleting a container whose processes have ended, and reports
// whether there were any: the state of the container, which then does not exist for the runtime, and its log.
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
