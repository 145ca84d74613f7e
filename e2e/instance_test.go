//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/testbed"
	"monopod/runner/spec"
)

var (
	patience = testbed.Patience()
	subnets  = testbed.Subnets{Prefix: "10.213"}
	ports    testbed.Ports
)

// manyProcessors is for tests whose pods request more than the machine may have.
const manyProcessors = `nodeCapacity: {cpu: "1000", memory: 1Ti}`

// instance is one monopod with directories and a subnet of its own.
type instance struct {
	t         *testing.T
	dir       string
	state     string
	manifests string
	subnet    string
	config    string
	cgroup    string
	cgroups   spec.Cgroups
	bin       string
	// agent is the program in bin to run.
	agent string
	cmd   *exec.Cmd
	log   *syncBuffer
	// shims is the directory of the shims of an embedded containerd.
	shims  string
	exited chan error
	// left means that it keeps running after the test.
	left bool
}

// newInstance prepares an instance; start runs it. At the end of the test all its pods are removed, and leftovers on the machine fail the
// test.
func newInstance(t *testing.T, extra ...string) *instance {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	in := newInstanceIn(t, t.TempDir(), extra...)
	t.Cleanup(in.cleanup)
	return in
}

// newInstanceIn prepares an instance with files in dir, which must exist.
func newInstanceIn(t *testing.T, dir string, extra ...string) *instance {
	t.Helper()
	run, err := os.MkdirTemp("/run", "monopod-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	// longer than the sockets of shims may be
	state := filepath.Join(run, "state-directory")
	in := &instance{
		t: t, dir: dir, state: state, manifests: filepath.Join(dir, "manifests"), bin: binaries(t), agent: "monopod",
		subnet: subnets.Take(t), config: filepath.Join(dir, "config.yaml"), cgroup: "/" + filepath.Base(run), log: &syncBuffer{},
	}
	t.Cleanup(func() {
		if !in.left {
			_ = os.RemoveAll(run)
		}
	})
	in.cgroups = spec.Cgroups{Root: in.cgroup, Driver: spec.CgroupDriver(os.Getenv("E2E_CGROUP_DRIVER"))}
	if in.cgroups.Driver != "" {
		extra = append(extra, "cgroupDriver: "+string(in.cgroups.Driver))
	}
	for _, d := range []string{"manifests", "cni", "images"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(testImage(t), filepath.Join(dir, "images", "busybox.tar")); err != nil && !errors.Is(err, fs.ErrExist) {
		in.copyFile(testImage(t), filepath.Join(dir, "images", "busybox.tar"))
	}
	lines := []string{
		"staticPodPath: " + in.manifests, "rootDirectory: " + filepath.Join(dir, "root"), "stateDirectory: " + state,
		"podLogsDir: " + filepath.Join(dir, "logs", "pods"), "preloadDirectories: [" + filepath.Join(dir, "images") + "]",
		"cniConfDir: " + filepath.Join(dir, "cni"), "podCIDR: " + in.subnet, "cgroupRoot: " + in.cgroup,
		"nodeName: e2e", "logging: {level: debug}", "evictionHard: {memory.available: 10Mi}", // whatever the disk of this machine looks like
	}
	if !slices.ContainsFunc(extra, func(line string) bool { return strings.HasPrefix(line, "imageGCHighThresholdPercent:") }) {
		lines = append(lines, "imageGCHighThresholdPercent: 100") // the same
	}
	in.write(in.config, strings.Join(append(lines, extra...), "\n")+"\n")
	return in
}

func (in *instance) copyFile(from, to string) {
	in.t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		in.t.Fatal(err)
	}
	in.write(to, string(b))
}

// write replaces a file the way a careful editor does: dot file, then rename.
func (in *instance) write(path, text string) {
	in.t.Helper()
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		in.t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		in.t.Fatal(err)
	}
}

// read returns a file of the instance's directory.
func (in *instance) read(name string) string {
	in.t.Helper()
	b, err := os.ReadFile(filepath.Join(in.dir, name))
	if err != nil {
		in.t.Fatal(err)
	}
	return string(b)
}

// put writes a manifest, drop removes it.
func (in *instance) put(name, text string) {
	in.t.Helper()
	in.write(filepath.Join(in.manifests, name+".yaml"), text)
}

func (in *instance) drop(name string) {
	in.t.Helper()
	if err := os.Remove(filepath.Join(in.manifests, name+".yaml")); err != nil {
		in.t.Fatal(err)
	}
}

// start runs the agent and returns when its socket answers.
func (in *instance) start() {
	in.t.Helper()
	in.startAs(exec.Command(filepath.Join(in.bin, in.agent), "run", "--config", in.config))
}

// startAs is start with another command line.
func (in *instance) startAs(cmd *exec.Cmd) {
	in.t.Helper()
	in.cmd = cmd
	in.cmd.Stdout, in.cmd.Stderr = in.log, in.log
	if in.cmd.SysProcAttr == nil {
		in.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	in.cmd.SysProcAttr.Setpgid = true
	if err := in.cmd.Start(); err != nil {
		in.t.Fatal(err)
	}
	exited := make(chan error, 1)
	in.exited = exited
	go func(c *exec.Cmd) { exited <- c.Wait(); close(exited) }(in.cmd)
	in.eventually("the socket answers", func() error {
		select {
		case err := <-exited:
			in.t.Fatalf("monopod ended at start: %v\n%s", err, in.log)
		default:
		}
		_, err := in.run("get", "pods", "-A")
		return err
	})
}

// signal sends a signal to the agent and returns its exit error.
func (in *instance) signal(s syscall.Signal) error {
	in.t.Helper()
	if err := in.cmd.Process.Signal(s); err != nil {
		in.t.Fatal(err)
	}
	select {
	case err := <-in.exited:
		in.cmd = nil
		return err
	case <-time.After(patience):
		in.t.Fatalf("monopod did not end %v after %v\n%s", patience, s, in.log.tail())
		return nil
	}
}

func (in *instance) kill9() {
	in.t.Helper()
	var exit *exec.ExitError
	if err := in.signal(syscall.SIGKILL); !errors.As(err, &exit) {
		in.t.Fatalf("kill -9: %v", err)
	}
}

// run executes a client command.
func (in *instance) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(in.bin, "monopod-client"), args...)
	c.Env = append(os.Environ(), "MONOPOD_SOCKET="+filepath.Join(in.state, "monopod.sock"))
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if err != nil {
		err = fmt.Errorf("monopod %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), err
}

// podList returns the output of `monopod get pods -A -o json`.
func (in *instance) podList() ([]corev1.Pod, error) {
	out, err := in.run("get", "pods", "-A", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return list.Items, nil
}

// pods returns all pods by name.
func (in *instance) pods() (map[string]corev1.Pod, error) {
	list, err := in.podList()
	all := map[string]corev1.Pod{}
	for _, p := range list {
		all[p.Name] = p
	}
	return all, err
}

// pod waits until the pod meets the condition and returns it.
func (in *instance) pod(name, what string, is func(p corev1.Pod) bool) corev1.Pod {
	in.t.Helper()
	var found corev1.Pod
	in.eventually(name+" "+what, func() error {
		all, err := in.pods()
		if err != nil {
			return err
		}
		p, ok := all[name]
		if !ok {
			return fmt.Errorf("no pod %s", name)
		}
		found = p
		if !is(p) {
			return fmt.Errorf("pod is %s", brief(p))
		}
		return nil
	})
	return found
}

func (in *instance) ready(name string) corev1.Pod {
	in.t.Helper()
	return in.pod(name, "is ready", isReady)
}

func (in *instance) gone(name string) {
	in.t.Helper()
	in.eventually(name+" is gone", func() error {
		all, err := in.pods()
		if err != nil {
			return err
		}
		if p, ok := all[name]; ok {
			return fmt.Errorf("pod is %s", brief(p))
		}
		return nil
	})
}

func isReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func brief(p corev1.Pod) string {
	b, _ := json.Marshal(p.Status)
	return string(b)
}

// eventually polls a condition for which there is no notification.
func (in *instance) eventually(what string, check func() error) {
	in.t.Helper()
	in.eventuallyUntil(time.Now().Add(patience), what, check)
}

func (in *instance) eventuallyUntil(deadline time.Time, what string, check func() error) {
	in.t.Helper()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			in.t.Fatalf("%s\nnot so in time: %s: %v", in.log.tail(), what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// cleanup removes all pods through monopod itself and then checks for leftovers.
func (in *instance) cleanup() {
	t := in.t
	entries, _ := os.ReadDir(in.manifests)
	for _, e := range entries {
		_ = os.Remove(filepath.Join(in.manifests, e.Name()))
	}
	_ = os.MkdirAll(in.manifests, 0o755)
	applied, _ := filepath.Glob(filepath.Join(in.dir, "root", "applied", "*"))
	for _, path := range applied {
		_ = os.Remove(path)
	}
	if in.cmd == nil {
		in.start()
	}
	in.eventually("all pods are gone", func() error {
		all, err := in.pods()
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("%d pods left", len(all))
		}
		return err
	})
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Errorf("monopod ended with %v after SIGTERM\n%s", err, in.log.tail())
	}
	if out, err := exec.Command(filepath.Join(in.bin, "monopod-client"), "cleanup", "--config", in.config).CombinedOutput(); err != nil {
		t.Errorf("monopod cleanup: %v: %s", err, out)
	}
	if in.log.contains("DATA RACE") || in.log.contains("panic:") {
		t.Errorf("the agent raced or panicked:\n%s", in.log)
	}
	in.leftovers()
}

// leftovers fails the test for mounts, processes and log directories that survived removal.
func (in *instance) leftovers() {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		in.t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if strings.Contains(line, in.dir+"/") || strings.Contains(line, in.state+"/") {
			in.t.Errorf("mount left behind: %s", line)
		}
	}
	cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range cmdlines {
		b, err := os.ReadFile(f)
		if err == nil && (bytes.Contains(b, []byte(in.state)) || bytes.Contains(b, []byte(in.dir))) {
			in.t.Errorf("process left behind: %s: %s", f, bytes.ReplaceAll(b, []byte{0}, []byte(" ")))
		}
	}
	logs := filepath.Join(in.dir, "logs")
	_ = filepath.WalkDir(logs, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			in.t.Errorf("log left behind: %s", path)
		}
		return nil
	})
}
