package shim

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// watchers are the containers of this shim process by id: a single one, because containers are not grouped.
type watchers struct {
	mu sync.Mutex
	m  map[string]*watcher
}

func newWatchers() *watchers { return &watchers{m: map[string]*watcher{}} }

func (ws *watchers) add(id string, w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.m[id] = w
}

func (ws *watchers) get(id string) *watcher {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.m[id]
}

// remove removes a container and closes its FIFOs.
func (ws *watchers) remove(id string) {
	ws.mu.Lock()
	w := ws.m[id]
	delete(ws.m, id)
	ws.mu.Unlock()
	if w != nil {
		w.release()
	}
}

// deletesInProcess reports whether a container may be deleted without runc.
func (ws *watchers) deletesInProcess(id string) bool {
	w := ws.get(id)
	return w != nil && w.deletes
}

// unmount unmounts the root file system of a deleted container. containerd would do the same after searching the mount table; without the
// directory, it does not search. Failures are left to containerd.
func (ws *watchers) unmount(id string) {
	w := ws.get(id)
	if w == nil {
		return
	}
	rootfs := filepath.Join(w.bundle, "rootfs")
	if unix.Unmount(rootfs, unix.UMOUNT_NOFOLLOW) == nil {
		_ = unix.Rmdir(rootfs) // which fails when there are more mounts
	}
}

// watcher is the additional state of one container.
type watcher struct {
	bundle   string
	exitFile string
	// hidden is the path of its HiddenProcess; "" means that there is none.
	hidden string
	// message and messageCopy are the paths of the termination message; "" means that there is none.
	message, messageCopy string
	// sharesPIDs means that other processes survive the exit of the init process.
	sharesPIDs bool
	// deletes means that it may be deleted without runc.
	deletes bool

	mu sync.Mutex
	// held are descriptors of the log FIFOs, open for reading and writing.
	held []int
	pid  int
	// cgroup is the directory with the container's OOM counter and processes; "" if unknown.
	cgroup string
	// oomSeen means that there was an OOM event. It is only used on kernels without a counter, because cgroup v1 also reports out-of-memory
	// situations in which no process is killed.
	oomSeen  bool
	recorded bool
}

func newWatcher(bundle string) *watcher {
	spec := readBundle(bundle)
	w := &watcher{bundle: bundle, exitFile: spec.exitFile(), hidden: spec.Annotations[AnnotationHiddenProcess], sharesPIDs: spec.sharesPIDs()}
	w.deletes = spec.Annotations[AnnotationDelete] == DeleteInProcess
	w.message, w.messageCopy = spec.Annotations[AnnotationMessage], spec.Annotations[AnnotationMessageCopy]
	if w.hidden != "" {
		// The runtime's client writes the process of an exec into this directory, by default /tmp. There is one container per shim.
		_ = os.Setenv("XDG_RUNTIME_DIR", filepath.Dir(w.hidden))
	}
	return w
}

// started stores the pid of the init process, which waits in its cgroup to be started.
func (w *watcher) started(pid int) {
	dir := cgroupDir(pid)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pid, w.cgroup = pid, dir
}

func (w *watcher) initPid() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pid
}

// pids returns the processes of the container, starting with the init process even if it has exited.
func (w *watcher) pids() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	pids := []int{w.pid}
	for _, p := range cgroupPids(w.cgroup) {
		if !slices.Contains(pids, p) {
			pids = append(pids, p)
		}
	}
	return pids
}

func (w *watcher) oom() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.oomSeen = true
}

// exited kills the remaining processes of the container and writes the exit record, but only once: the agent may have read and removed the
// file since.
//
// containerd's service kills the processes as well, but not if the init process exited while it was being started.
func (w *watcher) exited(code int, at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sharesPIDs {
		killAll(w.cgroup)
	}
	if w.recorded || w.exitFile == "" {
		return nil
	}
	if w.message != "" && w.messageCopy != "" {
		if err := keepMessage(w.message, w.messageCopy); err != nil {
			// The exit is more important, and the message is lost only if the machine goes down before the agent has read it.
			log.L.WithError(err).Warn("copy termination message")
		}
	}
	r := ExitRecord{ExitCode: code, ExitedAt: at, OOMKilled: w.oomKilledLocked()}
	if err := writeExitRecord(w.exitFile, r); err != nil {
		return err
	}
	w.recorded = true
	return nil
}

// oomKilledLocked reads the kernel's counter, which is incremented before the victim gets its signal.
func (w *watcher) oomKilledLocked() bool {
	if n, ok := oomKills(w.cgroup); ok {
		return n > 0
	}
	return w.oomSeen
}
