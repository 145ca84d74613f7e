package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// subject runs pods: monopod, or what people use today.
type subject interface {
	// put writes the manifest of a pod, and returns the time just before. The network is that of the "pod" or of the "host".
	put(name, network string, generation int) time.Duration
	// drop removes it, and returns the time just before.
	drop(name string) time.Duration
	// stop ends the subject with its pods.
	stop() error
	// logTail returns the end of its log.
	logTail() string
}

// manifest returns a pod that records its start as NAME-GENERATION in the directory stamps. Without the policy, podman asks the registry.
func manifest(name, network string, generation int, stamps string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: %t
  terminationGracePeriodSeconds: 2
  containers:
  - name: c
    image: %s
    imagePullPolicy: IfNotPresent
    args: [/out, %s-%d]
    volumeMounts: [{name: out, mountPath: /out}]
  volumes: [{name: out, hostPath: {path: %s, type: Directory}}]
`, name, network == "host", imageName, name, generation, stamps)
}

// files are manifests in a directory that a subject watches.
type files struct{ dir, stamps string }

// put implements subject.
func (f files) put(name, network string, generation int) time.Duration {
	return f.write(name, manifest(name, network, generation, f.stamps))
}

// write writes a manifest by rename and returns the time just before.
func (f files) write(name, text string) time.Duration {
	tmp := filepath.Join(f.dir, "."+name)
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		panic(err) // a directory we just made
	}
	t0 := monotonic()
	if err := os.Rename(tmp, filepath.Join(f.dir, name+".yaml")); err != nil {
		panic(err) // within one directory
	}
	return t0
}

// drop implements subject.
func (f files) drop(name string) time.Duration {
	t0 := monotonic()
	if err := os.Remove(filepath.Join(f.dir, name+".yaml")); err != nil {
		panic(err) // put wrote it
	}
	return t0
}

// clear removes all manifests.
func (f files) clear() {
	all, _ := filepath.Glob(filepath.Join(f.dir, "*.yaml"))
	for _, path := range all {
		_ = os.Remove(path) // it may be gone
	}
}

// tail returns the end of a log; empty: there is none.
func tail(path string) string {
	text, _ := os.ReadFile(path)
	return string(text[max(0, len(text)-4000):])
}

// trial takes pods of a subject through their lives.
type trial struct {
	subject
	// stamps is the directory in which they record their starts.
	stamps string
	// pods is how many there are at once.
	pods int
}

// life takes one pod through start, crash, edit and removal.
func (t *trial) life(name, network string, add func(string, time.Duration)) error {
	t0 := t.put(name, network, 0)
	at, err := stamp(t.stamps, name+"-0")
	if err != nil {
		return err
	}
	add("start", at-t0)
	time.Sleep(300 * time.Millisecond)

	pids := workload(name + "-0")
	if len(pids) != 1 {
		return fmt.Errorf("%s has processes %v", name, pids)
	}
	t0 = monotonic()
	if err := unix.Kill(pids[0], unix.SIGKILL); err != nil {
		return err
	}
	if at, err = stampAfter(t.stamps, name+"-0", t0); err != nil {
		return err
	}
	add("crash", at-t0)
	time.Sleep(300 * time.Millisecond)

	t0 = t.put(name, network, 1)
	if at, err = stamp(t.stamps, name+"-1"); err != nil {
		return err
	}
	add("edit", at-t0)
	time.Sleep(300 * time.Millisecond)

	t0 = t.drop(name)
	if err := gone(name + "-1"); err != nil {
		return err
	}
	add("remove", monotonic()-t0)
	time.Sleep(300 * time.Millisecond)
	return nil
}

// startAll returns the time until the last pod has started.
func (t *trial) startAll(network string) (time.Duration, error) {
	t0 := monotonic()
	for i := range t.pods {
		t.put(fmt.Sprintf("n%s%d", network, i), network, 0)
	}
	var last time.Duration
	for i := range t.pods {
		at, err := stampAfter(t.stamps, fmt.Sprintf("n%s%d-0", network, i), t0)
		if err != nil {
			return 0, err
		}
		last = max(last, at)
	}
	return last - t0, nil
}

// dropAll removes all manifests and returns the time just before.
func (t *trial) dropAll(network string) time.Duration {
	t0 := monotonic()
	for i := range t.pods {
		t.drop(fmt.Sprintf("n%s%d", network, i))
	}
	return t0
}

func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock of the kernel is always there
	}
	return time.Duration(ts.Nano())
}

// stamp waits until a workload has recorded its start.
func stamp(dir, name string) (time.Duration, error) { return stampAfter(dir, name, 0) }

func stampAfter(dir, name string, after time.Duration) (time.Duration, error) {
	for end := monotonic() + time.Minute; monotonic() < end; time.Sleep(2 * time.Millisecond) {
		files, err := filepath.Glob(filepath.Join(dir, name+".*"))
		if err != nil {
			return 0, err
		}
		for _, f := range files {
			if at, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(f), name+"."), 10, 64); err == nil && time.Duration(at) > after {
				return time.Duration(at), nil
			}
		}
	}
	return 0, fmt.Errorf("%s did not run within a minute", name)
}

// workload finds the processes of workloads whose names have the prefix.
func workload(prefix string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(b), "\x00/out\x00"+prefix) && strings.HasPrefix(string(b), "/bin/stamp\x00") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// ended waits until processes have exited. This costs less than searching all processes, which would distort the measurement.
func ended(pids []int) error {
	for end := monotonic() + time.Minute; monotonic() < end; time.Sleep(5 * time.Millisecond) {
		pids = slices.DeleteFunc(pids, func(pid int) bool { return unix.Kill(pid, 0) != nil })
		if len(pids) == 0 {
			return nil
		}
	}
	return fmt.Errorf("processes %v did not end within a minute", pids)
}

// gone waits until no process of workloads with the prefix is left.
func gone(prefix string) error {
	for end := monotonic() + time.Minute; monotonic() < end; time.Sleep(5 * time.Millisecond) {
		if len(workload(prefix)) == 0 {
			return nil
		}
	}
	return fmt.Errorf("%s did not go within a minute", prefix)
}
