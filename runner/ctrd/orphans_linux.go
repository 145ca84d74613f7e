package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// An agent or a containerd that is killed between the start of a shim and containerd's note of its address leaves a shim
// that nobody can talk to, and perhaps a container that runc has just made for it.

// shimProcess is what the command line of a shim says.
type shimProcess struct {
	namespace, id, address string
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
			p.id = words[i+1]
		case "-address":
			p.address = words[i+1]
		}
	}
	return p, p.id != ""
}

// shimScans bounds how often the processes are looked through: a shim being started turns into another process.
const shimScans = 10

// cleanShims kills shims of our containerd and namespace that have no container record, whoever's, and those of the
// unmade, our own containers whose record is all that containerd has. The record of a container is made before its
// shim and goes after it.
func (r *Runtime) cleanShims(ctx context.Context, unmade map[string]bool) error {
	for range shimScans {
		n, err := r.killLostShims(ctx, unmade)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if !sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	known, err := r.knownContainers(ctx, unmade)
	if err != nil {
		return err
	}
	return r.cleanRuntime(ctx, known)
}

// killLostShims looks through the processes once and says how many it killed.
func (r *Runtime) killLostShims(ctx context.Context, unmade map[string]bool) (int, error) {
	found := r.ownShims()
	if len(found) == 0 {
		return 0, nil
	}
	known, err := r.knownContainers(ctx, unmade)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for pid, p := range found {
		if known[p.id] {
			continue
		}
		n++
		r.log.Warn("killing a shim that lost its container", "id", p.id, "pid", pid)
		errs = append(errs, killShim(pid, p.id))
	}
	return n, errors.Join(errs...)
}

// killLostShim kills the shim of a container that was never started and of whose task containerd knows nothing: it ended between the
// start of the shim and its note of the address. Its record goes only after this.
func (r *Runtime) killLostShim(id string) error {
	var errs []error
	for pid, p := range r.ownShims() {
		if p.id == id {
			r.log.Warn("killing a shim that containerd does not know", "id", id, "pid", pid)
			errs = append(errs, killShim(pid, id))
		}
	}
	return errors.Join(errs...)
}

// ownShims returns the shims of our containerd and namespace by pid.
func (r *Runtime) ownShims() map[int]shimProcess {
	address := endpointPath(r.cfg.Endpoint)
	if address == "" {
		address = r.path("containerd", "containerd.sock")
	}
	found := map[int]shimProcess{}
	for _, name := range names("/proc") {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", name, "cmdline"))
		if err != nil {
			continue
		}
		if p, ok := parseShim(string(b)); ok && p.namespace == r.cfg.Namespace && p.address == address {
			found[pid] = p
		}
	}
	return found
}

// knownContainers returns the ids of all containers in the namespace, also of those that are not ours, but not the
// unmade.
func (r *Runtime) knownContainers(ctx context.Context, unmade map[string]bool) (map[string]bool, error) {
	all, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	known := map[string]bool{}
	for _, c := range all {
		known[c.ID] = !unmade[c.ID]
	}
	return known, nil
}

// killShim kills a shim if the pid is still that of the shim with this id.
func killShim(pid int, id string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil //nolint:nilerr // it has ended
	}
	defer func() { _ = unix.Close(fd) }()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if p, ok := parseShim(string(b)); err != nil || !ok || p.id != id {
		return nil //nolint:nilerr // it has ended
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill shim %d: %w", pid, err)
	}
	return nil
}

// cleanRuntime deletes containers that only their OCI runtime knows. Its state directory is ours alone.
func (r *Runtime) cleanRuntime(ctx context.Context, known map[string]bool) error {
	var errs []error
	for _, rt := range r.runtimes() {
		root := filepath.Join(rt.root, r.cfg.Namespace)
		for _, id := range names(root) {
			if known[id] {
				continue
			}
			out, err := exec.CommandContext(ctx, rt.path, "--root", root, "delete", "--force", id).CombinedOutput()
			if err != nil {
				errs = append(errs, fmt.Errorf("delete %s: %w: %s", id, err, strings.TrimSpace(string(out))))
			}
		}
	}
	return errors.Join(errs...)
}

// runtimes are the OCI runtimes that may have made containers.
func (r *Runtime) runtimes() []ociRuntime {
	runtimes := []ociRuntime{r.usual()}
	if r.cfg.ShippedRuntime != "" {
		runtimes = append(runtimes, r.shipped())
	}
	for _, handler := range names(r.handlersDir()) {
		rt, err := r.handled(handler)
		if err != nil {
			r.log.Warn("containers of a RuntimeClass are not looked through", "err", err)
			continue
		}
		runtimes = append(runtimes, rt)
	}
	return runtimes
}
