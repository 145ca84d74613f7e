//go:build e2e

package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// logDir is the directory with the log files of the only container of a pod.
func (in *instance) logDir(pod string) string {
	in.t.Helper()
	found, err := filepath.Glob(filepath.Join(in.dir, "logs", "pods", "default_"+pod+"_*", "c"))
	if err != nil || len(found) != 1 {
		in.t.Fatalf("log directories of %s: %v %v", pod, found, err)
	}
	return found[0]
}

// loud is a pod whose container counts from 1 to n and then keeps running.
func loud(name string, n int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: %s
    command: [sh, -c, "seq 1 %d | sed 's/.*/line & of many/'; exec sleep 1000"]
`, name, image, n)
}

func TestALoudContainersLogsRotate(t *testing.T) {
	t.Parallel()
	in := newInstance(t, "containerLogMaxSize: 40k", "containerLogMaxFiles: 4", "podLogsMaxSize: 300k")
	in.start()
	const lines = 4000
	in.put("loud", loud("loud", lines))
	follow := make(chan string, 1)
	in.ready("loud")
	go func() {
		out, _ := in.run("logs", "loud", "-f", "--tail", "1")
		follow <- out
	}()
	last := fmt.Sprintf("line %d of many\n", lines)
	in.logs(last, "loud", "--tail", "1")
	dir := in.logDir("loud")
	var names []string
	in.eventually("old files are compressed", func() error {
		entries, err := os.ReadDir(dir)
		names = nil
		gz := 0
		for _, e := range entries {
			names = append(names, e.Name())
			if strings.HasSuffix(e.Name(), ".gz") {
				gz++
			}
			if st, err := e.Info(); err == nil && st.Size() > 40000 {
				t.Errorf("%s has %d bytes", e.Name(), st.Size())
			}
		}
		if err == nil && (len(names) != 4 || gz != 2) {
			err = fmt.Errorf("there are %v", names)
		}
		return err
	})
	out, err := in.run("logs", "loud")
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	first, err := strconv.Atoi(strings.Fields(all[0])[1])
	if err != nil || len(all) != lines-first+1 || len(all) < 1500 {
		t.Errorf("%d lines from %q on", len(all), all[0])
	}
	for i, line := range all {
		if line != fmt.Sprintf("line %d of many", first+i) {
			t.Fatalf("line %d is %q", first+i, line)
		}
	}
	if out, err := in.run("logs", "loud", "--tail", "1500"); err != nil || strings.Count(out, "\n") != 1500 || !strings.HasSuffix(out, last) {
		t.Errorf("the last 1500: %v, %d lines", err, strings.Count(out, "\n"))
	}
	t.Run("all together", in.allLogsStayBelow(300_000))
	in.drop("loud")
	in.gone("loud")
	if got := <-follow; !strings.Contains(got, last) {
		t.Errorf("followed: %q", got[max(0, len(got)-100):])
	}
	in.eventually("its logs are gone", func() error {
		if _, err := os.Stat(dir); err == nil {
			return fmt.Errorf("%s is there", dir)
		}
		return nil
	})
}

// allLogsStayBelow has several pods write more than the limit for all logs: the oldest files are removed, and no container is blocked.
func (in *instance) allLogsStayBelow(limit int64) func(*testing.T) {
	return func(t *testing.T) {
		const others, lines = 5, 4000 // some 90 kB are kept of each by its own limits
		for i := range others {
			in.put(fmt.Sprint("other-", i), loud(fmt.Sprint("other-", i), lines))
		}
		for i := range others {
			in.ready(fmt.Sprint("other-", i))
			in.logs(fmt.Sprintf("line %d of many\n", lines), fmt.Sprint("other-", i), "--tail", "1")
		}
		in.eventually("all logs together are below their limit", func() error {
			var sum int64
			err := filepath.WalkDir(filepath.Join(in.dir, "logs", "pods"), func(_ string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				st, err := d.Info()
				if err == nil {
					sum += st.Size()
				}
				return err
			})
			if err == nil && (sum > limit || sum < limit/3) {
				err = fmt.Errorf("they have %d bytes", sum)
			}
			return err
		})
		out, err := in.run("events")
		if err != nil || !strings.Contains(out, "LogsTrimmed") {
			t.Errorf("%v: no word of it in\n%s", err, out)
		}
		for i := range others {
			in.ready(fmt.Sprint("other-", i))
			in.drop(fmt.Sprint("other-", i))
		}
	}
}

func TestAFullDiskOfLogsBlocksNoContainer(t *testing.T) {
	t.Parallel()
	in := newInstance(t, `podLogsMaxSize: "-1"`)
	disk := filepath.Join(in.dir, "logs")
	if err := os.MkdirAll(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 700<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	in.start()
	const lines = 20000 // far more than fits, and than a pipe holds
	in.put("loud", strings.Replace(loud("loud", lines), "exec sleep", "touch /done; while [ ! -e /go ]; do sleep 0.1; done; echo room again; exec sleep", 1))
	in.ready("loud")
	in.happens([]string{"loud"}, "Warning", "LogsDropped", "no space left on device")
	out, err := in.run("why", "loud")
	if err != nil && !strings.Contains(out, "free disk space") {
		t.Errorf("why: %v\n%s", err, out)
	}
	if !strings.Contains(out, "is dropped") {
		t.Errorf("why:\n%s", out)
	}
	// it got through all its output
	in.eventually("the container goes on", func() error { return in.inContainer("done") })
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	in.touchInContainer("go")
	in.logs("room again\n", "loud", "--tail", "1")
	out, err = in.run("logs", "loud")
	if err != nil {
		t.Fatal(err)
	}
	missing, have := 0, 0
	for line := range strings.Lines(out) {
		var n int
		if _, err := fmt.Sscanf(line, "monopod: %d lines of output are missing here", &n); err == nil {
			missing += n
		} else if strings.HasPrefix(line, "line ") {
			have++
		}
	}
	if have+missing != lines || missing == 0 || have == 0 {
		t.Errorf("%d lines are there and %d are said to be missing, of %d", have, missing, lines)
	}
	in.happens([]string{"loud"}, "Normal", "LogsResumed", "lines are missing")
}

// upper finds a file that the only running container has made.
func (in *instance) rootOf() (string, error) {
	found, err := filepath.Glob(filepath.Join(in.state, "containerd", "io.containerd.runtime.v2.task", "*", "*", "rootfs"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("root directories: %v %w", found, err)
	}
	return found[0], nil
}

func (in *instance) inContainer(name string) error {
	root, err := in.rootOf()
	if err != nil {
		return err
	}
	_, err = os.Stat(filepath.Join(root, name))
	return err
}

func (in *instance) touchInContainer(name string) {
	in.t.Helper()
	root, err := in.rootOf()
	if err == nil {
		err = os.WriteFile(filepath.Join(root, name), nil, 0o600)
	}
	if err != nil {
		in.t.Fatal(err)
	}
}
