package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/atomicfile"
	"monopod/internal/pause"
	"monopod/runner/ctrd/layout"
	"monopod/runner/ctrd/linuxns"
	"monopod/runner/ctrd/oci"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
	"monopod/runner/spec"
	"monopod/runner/spec/build"
)

// A process namespace lives as long as its process 1. Pods with shareProcessNamespace get a process for that: the shim's program
// under the name pause, in a container of its own that containerd does not know. Other pods have none.

// sharesProcesses reports whether the containers of a pod share a process namespace.
func sharesProcesses(pod *corev1.Pod) bool {
	return pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace && !pod.Spec.HostPID
}

// Files of a bundle: the pid of the process, and the path of the OCI runtime that created it.
const (
	pidFile     = "pid"
	runtimeFile = "runtime"
)

// Pauses runs process 1 of pods whose containers share a process namespace.
type Pauses struct {
	Dirs  layout.Dirs
	Files *Files
	OCI   *oci.Runtimes
	// Facts returns the current facts about the machine.
	Facts func() spec.Host
	// DefaultRuntime is the OCI runtime for bundles without one; ShimPath is the program of the process.
	DefaultRuntime, ShimPath string
	Log                      *slog.Logger
}

// startPause starts process 1 of a sandbox and pins its namespace. It is idempotent.
func (r *Pauses) startPause(ctx context.Context, rec *record.Sandbox) error {
	if r.pauseAlive(rec.ID) {
		return nil
	}
	if err := r.StopPause(ctx, rec.ID); err != nil {
		return err
	}
	rt, err := r.OCI.RuntimeOf(ctx, rec)
	if err != nil {
		return err
	}
	if err := r.writePause(rec, rt); err != nil {
		return err
	}
	dir := r.Dirs.PauseDir(rec.ID)
	if err := r.runPause(ctx, rt.Path, "run", "--detach", "--bundle", dir, "--pid-file", filepath.Join(dir, pidFile), rec.ID); err != nil {
		return err
	}
	pid, err := readPid(filepath.Join(dir, pidFile))
	if err != nil {
		return err
	}
	return linuxns.PinPID(r.Dirs.NsDir(rec.ID), pid)
}

// writePause writes the bundle.
func (r *Pauses) writePause(rec *record.Sandbox, rt oci.Runtime) error {
	pod := rec.Pod.Object.DeepCopy()
	pod.UID = record.UIDOf(rec)
	sb, err := r.Files.SpecSandbox(pod, rec)
	if err != nil {
		return err
	}
	s := build.Pause(spec.Input{Pod: pod, ID: rec.ID, Sandbox: sb, Host: r.Facts()}, r.ShimPath)
	s.Linux.Seccomp = seccomp.DefaultProfile(s)
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	root := filepath.Join(r.Dirs.PauseDir(rec.ID), s.Root.Path)
	return errors.Join(
		os.MkdirAll(filepath.Join(root, "proc"), 0o755),
		os.MkdirAll(filepath.Join(root, "dev"), 0o755),
		os.WriteFile(filepath.Join(root, build.PauseProgram), nil, 0o755),
		os.WriteFile(filepath.Join(r.Dirs.PauseDir(rec.ID), runtimeFile), []byte(rt.Path), 0o600),
		os.WriteFile(filepath.Join(r.Dirs.PauseDir(rec.ID), "config.json"), b, 0o600),
	)
}

// maxRuntimeOutput limits the output of an OCI runtime in an error.
const maxRuntimeOutput = 16 << 10

// runPause runs an OCI runtime.
func (r *Pauses) runPause(ctx context.Context, runtime string, args ...string) error {
	// Output goes to a file, because the new process keeps it open forever. The file has no name, so that it cannot be left over.
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("file for the output of %s: %w", filepath.Base(runtime), err)
	}
	out := os.NewFile(uintptr(fd), "output")
	defer func() { _ = out.Close() }()
	cmd := exec.CommandContext(ctx, runtime, append([]string{"--root", r.Dirs.PauseRoot()}, args...)...)
	cmd.Stderr = out
	if err := cmd.Run(); err != nil {
		text, _ := io.ReadAll(io.NewSectionReader(out, 0, maxRuntimeOutput))
		return fmt.Errorf("process namespace: %s %s: %w: %s", filepath.Base(runtime), args[0], err, strings.TrimSpace(string(text)))
	}
	return nil
}

// pauseAlive reports whether the pinned namespace has its process 1.
func (r *Pauses) pauseAlive(id string) bool {
	pid, err := readPid(filepath.Join(r.Dirs.PauseDir(id), pidFile))
	if err != nil {
		return false
	}
	var pin, process unix.Stat_t
	return linuxns.Pinned(r.Dirs.NsDir(id), linuxns.Set{PID: true}) &&
		unix.Stat(filepath.Join(r.Dirs.NsDir(id), "pid"), &pin) == nil &&
		unix.Stat(fmt.Sprintf("/proc/%d/ns/pid", pid), &process) == nil && // without process 1 the namespace is empty
		pin.Ino == process.Ino && pin.Dev == process.Dev
}

// StopPause kills process 1 of a sandbox, and with it all processes of its namespace. It is idempotent.
func (r *Pauses) StopPause(ctx context.Context, id string) error {
	dir := r.Dirs.PauseDir(id)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	pid, _ := readPid(filepath.Join(dir, pidFile))
	if _, err := os.Lstat(filepath.Join(r.Dirs.PauseRoot(), id)); err == nil {
		err := r.runPause(ctx, pauseRuntime(filepath.Join(dir, runtimeFile), r.DefaultRuntime), "delete", "--force", id)
		if state := filepath.Join(r.Dirs.PauseRoot(), id); err != nil && !trees.ReadableJSON(filepath.Join(state, "state.json")) {
			r.Log.Warn("removed damaged state of a process namespace", "sandbox", id, "err", err)
			if pid > 0 && r.pauseAlive(id) { // it is process 1 of the pinned namespace
				_ = unix.Kill(pid, unix.SIGKILL) // it may end on its own; its cgroup is emptied later in any case
			}
			err = trees.Remove(state)
		}
		if err != nil {
			return err
		}
	}
	reap(ctx, pid)
	return trees.Remove(dir)
}

// pauseRuntime returns the OCI runtime that a file names, or the default one if the file is missing or damaged, or if that runtime was
// removed from the machine.
func pauseRuntime(file, otherwise string) string {
	b, err := atomicfile.Read(file, unix.PathMax)
	if err != nil || !filepath.IsAbs(string(b)) {
		return otherwise
	}
	if _, err := exec.LookPath(string(b)); err != nil {
		return otherwise
	}
	return string(b)
}

// reapTimeout is how long a killed process gets to end.
const reapTimeout = 2 * time.Second

// reap waits for a killed process, if it has become our child.
func reap(ctx context.Context, pid int) {
	if pid <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reapTimeout)
	defer cancel()
	for {
		got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		if got == pid || err != nil && !errors.Is(err, unix.EINTR) || !pause.For(ctx, time.Millisecond) {
			return
		}
	}
}

func readPid(path string) (int, error) {
	b, err := atomicfile.Read(path, 64)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err == nil && pid <= 0 {
		err = fmt.Errorf("%s contains no pid", path)
	}
	return pid, err
}
