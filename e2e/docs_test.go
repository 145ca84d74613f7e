//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"monopod/e2e/testimages"
)

// commands returns the commands that the docs show: the lines of all ```console blocks. In a block with prompts ("$ " or "# "), only those
// lines are commands; the others are output.
func commands(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []string
	inside := false
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "```"):
			inside = strings.HasPrefix(line, "```console")
		case inside && strings.TrimSpace(line) != "":
			all = append(all, line)
		}
	}
	var typed []string
	for _, line := range all {
		if cmd, ok := strings.CutPrefix(line, "$ "); ok {
			typed = append(typed, cmd)
		}
	}
	if len(typed) == 0 {
		return all
	}
	return typed
}

func TestEachCommandInTheDocsWorks(t *testing.T) {
	files, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	in := newInstance(t)
	in.start()
	in.put("web", sleeper("web", "echo served"))
	in.ready("web")
	r := newRuns(t)
	testimages.Archive(t, filepath.Join(r.dir, "images", "example.tar"), exampleImage)
	plain, err := filepath.Abs("../bin")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := map[string]string{
		"make run":  "TestMakeRunShowsTheExampleAndLeavesNothing",
		"make test": "it runs this test",
	}
	n := 0
	for _, file := range append([]string{"../README.md"}, files...) {
		for _, cmd := range commands(t, file) {
			if elsewhere[cmd] != "" {
				continue
			}
			n++
			t.Run(filepath.Base(file)+": "+cmd, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				c := exec.CommandContext(ctx, "bash", "-c", cmd)
				c.Dir = ".."
				c.Env = append(r.env, "MONOPOD_SOCKET="+filepath.Join(in.state, "monopod.sock"), "PATH="+plain+":"+os.Getenv("PATH"))
				if out, err := c.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
	if n < 4 {
		t.Errorf("only %d commands found in the docs", n)
	}
}

func TestMakeRunShowsTheExampleAndLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	if os.Getenv(ownNetwork) == "" {
		inAnOwnNetwork(t)
		return
	}
	before := snapshot(t)
	cmd := exec.Command("make", "run")
	cmd.Dir = ".."
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait(); close(done) }()
	t.Cleanup(func() { // whatever failed, the example does not stay
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		for range done {
		}
	})
	w := &instance{t: t, log: out}
	w.eventually("the example is shown", func() error {
		select {
		case err := <-done:
			t.Fatalf("make run ended: %v\n%s", err, out)
		default:
		}
		if !out.contains("Ctrl-C stops and removes everything.") {
			return fmt.Errorf("output so far: %s", out)
		}
		return nil
	})
	for _, want := range []string{"web", "pair", "crash", "http://127.0.0.1:18080/"} {
		if !out.contains(want) {
			t.Errorf("%q is not shown:\n%s", want, out)
		}
	}
	r, err := http.Get("http://127.0.0.1:18080/")
	if err != nil {
		t.Fatalf("the URL does not open: %v\n%s", err, out)
	}
	body, _ := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if !strings.Contains(string(body), "default/web") {
		t.Errorf("the page is %s", body)
	}
	applied(t, w)
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done: //nolint:errcheck // make reports the interrupt
	case <-time.After(patience):
		t.Fatalf("Ctrl-C does not end it:\n%s", out)
	}
	after := snapshot(t)
	for what, was := range before {
		if after[what] != was {
			t.Errorf("%s before:\n%s\nafter:\n%s\n%s", what, was, after[what], out)
		}
	}
	if out.contains("level=INFO") || out.contains("keep running") {
		t.Errorf("Ctrl-C prints the log of a daemon:\n%s", out)
	}
}

// ownNetwork is set in the environment of a test that inAnOwnNetwork runs.
const ownNetwork = "MONOPOD_E2E_OWN_NETWORK"

// inAnOwnNetwork runs a test once more, in a network namespace with an interface and a default route: it compares links, routes and rules
// before and after, and other programs of the machine change theirs meanwhile.
func inAnOwnNetwork(t *testing.T) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const machine = `ip link set lo up && ip link add eth0 type veth peer name eth1 && ip link set eth1 up && ip link set eth0 up && ip addr add 192.0.2.2/24 dev eth0 &&
		ip route add default via 192.0.2.1 && exec "$@"`
	cmd := exec.Command("sh", "-c", machine, "sh", program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ownNetwork+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a network of its own: %v", err)
	}
}

// applied applies two examples to the monopod of `make run`, as a new user does, and waits until their pods have networks. Their image may
// be unreachable.
func applied(t *testing.T, w *instance) {
	t.Helper()
	monopod := func(args ...string) (string, error) {
		c := exec.Command("bin/monopod", args...)
		c.Dir, c.Env = "..", append(os.Environ(), "MONOPOD_SOCKET=/run/monopod-hello/monopod.sock")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := monopod("apply", "-f", "examples/deployment.yaml", "-f", "examples/sidecar.yaml"); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	w.eventually("the applied pods have addresses", func() error {
		out, err := monopod("get", "pods", "-o", "wide")
		for _, name := range []string{"web-0", "web-1", "sidecar"} {
			if !regexp.MustCompile(`(?m)^(default +)?` + name + `\S* .* 10\.86\.0\.\d+ `).MatchString(out) {
				return fmt.Errorf("%s has none: %w\n%s", name, err, out)
			}
		}
		return err
	})
}

// snapshot records everything that a run could leave on the machine.
func snapshot(t *testing.T) map[string]string {
	t.Helper()
	s := map[string]string{}
	for what, cmd := range map[string]string{
		"mounts":    "grep -cE 'monopod-hello|/.cache/hello' /proc/self/mountinfo || true",
		"netns":     "ls /run/netns /var/run/netns 2>/dev/null || true",
		"nftables":  "nft list ruleset 2>/dev/null | sed -E 's/counter packets [0-9]+ bytes [0-9]+//' | grep -E '10\\.86\\.|18080|monopod-hello' || true",
		"files":     "find ../.cache/hello -mindepth 1 -maxdepth 1 2>/dev/null | grep -vE '/(bin|images|config.yaml)$' | sort || true",
		"links":     "ip -br link | awk '{print $1}' | sort",
		"iptables":  "iptables-save 2>/dev/null | grep -v '^#' | sed 's/\\[[0-9:]*\\]//' | grep -E '10\\.86\\.|18080' || true",
		"processes": "pgrep -f 'monopod-hell[o]|[.]cache/hell[o]' || true",
		"cgroups":   "find /sys/fs/cgroup -maxdepth 3 -name 'monopod-hello*' | sort",
		"run":       "ls -d /run/monopod-hello 2>/dev/null || true",
		"routes":    "ip route",
	} {
		out, err := exec.Command("bash", "-c", cmd).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", cmd, err, out)
		}
		s[what] = string(out)
	}
	return s
}
