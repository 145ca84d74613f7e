//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"monopod/e2e/testimages"
	"monopod/fixture"
)

// runs is an environment for runs of `once` and `up`: directories, cgroups and subnets of its own.
type runs struct {
	*instance
	root string
	run  string
	env  []string
}

func newRuns(t *testing.T) *runs {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	dir := t.TempDir()
	run, err := os.MkdirTemp("/run", "monopod-e2e-runs-")
	if err != nil {
		t.Fatal(err)
	}
	prefix := "10.213"
	if p := os.Getenv("MONOPOD_E2E_SUBNETS"); p != "" {
		prefix = p
	}
	images := filepath.Join(dir, "images")
	if err := os.Mkdir(images, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &runs{root: filepath.Join(dir, "lib"), run: filepath.Join(run, "state")}
	r.instance = &instance{t: t, dir: dir, state: run, bin: binaries(t), log: &syncBuffer{}, cgroup: "/" + filepath.Base(run)}
	r.copyFile(testImage(t), filepath.Join(images, "busybox.tar"))
	r.env = append(os.Environ(),
		"MONOPOD_ROOT_DIRECTORY="+r.root, "MONOPOD_STATE_DIRECTORY="+r.run, "MONOPOD_PRELOAD_DIRECTORIES="+images, "MONOPOD_CGROUP_ROOT="+r.cgroup,
		"MONOPOD_RUN_POD_CIDR="+prefix+".128.0/17", "MONOPOD="+filepath.Join(r.bin, "monopod"), "PATH="+r.bin+":"+os.Getenv("PATH"),
	)
	if driver := os.Getenv("E2E_CGROUP_DRIVER"); driver != "" {
		r.env = append(r.env, "MONOPOD_CGROUP_DRIVER="+driver)
	}
	config := filepath.Join(dir, "config.yaml")
	r.write(config, "nodeName: e2e\nlogging: {level: debug}\n")
	r.env = append(r.env, "MONOPOD_CONFIG="+config)
	t.Cleanup(func() {
		r.leftBehind()
		_ = os.RemoveAll(run)
	})
	return r
}

// command prepares monopod.
func (r *runs) command(args ...string) (c *exec.Cmd, out, errs *syncBuffer) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	r.t.Cleanup(cancel)
	c = exec.CommandContext(ctx, filepath.Join(r.bin, "monopod"), args...)
	out, errs = &syncBuffer{}, &syncBuffer{}
	c.Env, c.Dir, c.Stdout, c.Stderr = r.env, r.dir, out, errs
	return c, out, errs
}

// do runs monopod until it exits.
func (r *runs) do(args ...string) (code int, out, errs string) {
	c, o, e := r.command(args...)
	err := c.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		r.t.Fatal(err)
	}
	if e.contains("DATA RACE") {
		r.t.Errorf("monopod %s:\n%s", strings.Join(args, " "), e)
	}
	return c.ProcessState.ExitCode(), o.String(), e.String()
}

// manifest writes a file for -f.
func (r *runs) manifest(name, text string) string {
	path := filepath.Join(r.dir, name+".yaml")
	r.write(path, text)
	return path
}

// serving is a pod that serves its own name.
func serving(name string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, annotations: {monopod.dev/free-host-ports: http}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %[2]s
    command: [sh, -c, "echo I am %[1]s; echo %[1]s >/index.html; exec httpd -f -p 8080 -h /"]
    ports: [{name: http, containerPort: 8080}]
    readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1}
`, name, image)
}

// running is a pod that runs a script once.
func running(name, script string) string {
	return fmt.Sprintf("\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  restartPolicy: Never\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: main, image: %s, command: [sh, -c, %q]}\n", name, image, script)
}

// traces are leftovers of runs on the machine, except images.
func (r *runs) traces() []string {
	var found []string
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, r.root) || strings.Contains(line, r.run) {
			found = append(found, "mount: "+line)
		}
	}
	cmdlines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range cmdlines {
		cmdline, _ := os.ReadFile(f)
		cgroup, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cgroup"))
		if bytes.Contains(cmdline, []byte(r.run)) || bytes.Contains(cmdline, []byte(r.root)) || bytes.Contains(cgroup, []byte(r.cgroup)) {
			found = append(found, "process: "+f+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	subnet := strings.TrimSuffix(r.subnets(), "128.0/17")
	for what, args := range map[string][]string{"firewall": {"iptables-save"}, "nftables": {"nft", "-s", "list", "ruleset"}, "route": {"ip", "route"}, "address": {"ip", "-o", "addr"}} {
		out, err := exec.Command(args[0], args[1:]...).Output()
		if err != nil {
			found = append(found, fmt.Sprint(args, err))
		}
		for line := range strings.Lines(string(out)) {
			if inUpperHalf(line, subnet) {
				found = append(found, what+": "+line)
			}
		}
	}
	cgroups, _ := filepath.Glob("/sys/fs/cgroup" + r.cgroup + "*")
	more, _ := filepath.Glob("/sys/fs/cgroup/*" + r.cgroup + "*")
	for _, c := range slices.Concat(cgroups, more) {
		found = append(found, "cgroup: "+c)
	}
	files, _ := filepath.Glob(r.root + "-runs/*/*")
	for _, f := range files {
		if !slices.Contains([]string{"containerd", "monopod.log", "monopod.pid"}, filepath.Base(f)) {
			found = append(found, "file: "+f)
		}
	}
	states, _ := filepath.Glob(r.run + "-runs/*")
	for _, f := range states {
		found = append(found, "file: "+f)
	}
	return found
}

// subnets is the pool of these runs.
func (r *runs) subnets() string {
	for _, v := range r.env {
		if s, ok := strings.CutPrefix(v, "MONOPOD_RUN_POD_CIDR="); ok {
			return s
		}
	}
	return ""
}

// inUpperHalf reports whether a line contains an address of the pool, such as 10.213.130.2 for 10.213.
func inUpperHalf(line, prefix string) bool {
	for f := range strings.FieldsFuncSeq(line, func(c rune) bool { return c != '.' && (c < '0' || c > '9') }) {
		var third int
		if rest, ok := strings.CutPrefix(f, prefix); ok {
			if _, err := fmt.Sscanf(rest, "%d.", &third); err == nil && third >= 128 {
				return true
			}
		}
	}
	return false
}

// nothing fails the test when anything is left.
func (r *runs) nothing(when string) {
	r.t.Helper()
	if found := r.traces(); len(found) > 0 {
		r.t.Errorf("%s, %d things are left behind, such as:\n%s", when, len(found), strings.Join(found[:min(10, len(found))], "\n"))
	}
}

// leftBehind checks for leftovers of a test, and for races in the agents.
func (r *runs) leftBehind() {
	r.nothing("at the end")
	logs, _ := filepath.Glob(r.root + "-runs/*/monopod.log")
	for _, f := range logs {
		text, _ := os.ReadFile(f)
		if bytes.Contains(text, []byte("DATA RACE")) || bytes.Contains(text, []byte("panic:")) {
			r.t.Errorf("%s: the agent raced or panicked:\n%s", f, text)
		}
	}
	if r.t.Failed() {
		for _, f := range logs {
			text, _ := os.ReadFile(f)
			r.t.Logf("%s:\n%s", f, text[max(0, len(text)-2000):])
		}
		_, out, errs := r.do("down", "--all")
		_, out2, errs2 := r.do("cleanup", "--runs")
		r.t.Log(out, errs, out2, errs2)
	}
}

// junit counts the test cases of a report and those that failed.
func junit(t *testing.T, file string) (tests, failures int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Suite struct {
			Cases []struct {
				Failure *struct{} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b, &all); err != nil {
		t.Fatalf("%v:\n%s", err, b)
	}
	for _, c := range all.Suite.Cases {
		if c.Failure != nil {
			failures++
		}
	}
	return len(all.Suite.Cases), failures
}

func TestOnceRunsPodsAndLeavesNothing(t *testing.T) {
	r := newRuns(t)
	web, good, bad := r.manifest("web", serving("web")), r.manifest("good", running("good", "echo done")), r.manifest("bad", running("bad", "echo the disk is full; exit 3"))
	slow := r.manifest("slow", caseText(t, "neverready"))
	crash := r.manifest("crash", strings.Replace(running("crash", "echo cannot begin; exit 4"), "restartPolicy: Never", "restartPolicy: Always", 1))
	late, job, none := r.manifest("late", caseText(t, "slowfail")), r.manifest("job", caseText(t, "c25f-once-fail")), r.manifest("none", caseText(t, "badcmd2"))
	// A service manager that started it expects notifications from it, but not from its containers: runc would wait for those.
	r.env = append(r.env, "NOTIFY_SOCKET="+filepath.Join(r.dir, "notify"))
	if code, out, errs := r.do("up", "-f", good, "--", "sh", "-c", "echo told at $NOTIFY_SOCKET"); code != 0 || !strings.Contains(out, "told at "+r.dir) {
		t.Errorf("up as a service: exit code %d:\n%s%s", code, out, errs)
	}
	for _, c := range []struct {
		name            string
		args            []string
		code            int
		out, errs       string
		tests, failures int
	}{
		{"all is well", []string{"-f", web, "-f", good}, 0, "ok", "", 2, 0},
		{"one has failed", []string{"-f", web, "-f", bad}, 1, "container main ended with exit code 3", "pod default/bad, container main:\n    the disk is full\n", 2, 1},
		{"one fails after it was Ready", []string{"-f", late}, 1, "container t ended with exit code 7", "assert failed: 2 != 3", 1, 1},
		{"readiness is enough", []string{"-f", late, "--until", "ready"}, 0, "ok", "", 1, 0},
		{"a Job fails, and its sidecar is killed", []string{"-f", job}, 1, "the Job has failed: pod c25f-0: container test ended with exit code 3", "", 2, 2},
		{"one is not ready in time", []string{"-f", slow, "-f", good, "--timeout", "20s"}, 2, "waiting", "default/web is not ready:\n", 2, 1},
		{"a command is not there in time", []string{"-f", none, "--timeout", "20s", "--max-restarts", "-1"}, 2, "waiting", "\"pytst\"", 1, 1},
		{"one crashes again and again", []string{"-f", crash, "--max-restarts", "1", "--min-ready", "10s"}, 1, "container main was restarted once; container main ended with exit code 4", "cannot begin", 1, 1},
	} {
		report := filepath.Join(r.dir, "junit.xml")
		code, out, errs := r.do(append([]string{"once", "--rm", "--junit", report}, c.args...)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) {
			t.Errorf("%s: exit code %d:\n%s%s", c.name, code, out, errs)
		}
		if tests, failures := junit(t, report); tests != c.tests || failures != c.failures {
			t.Errorf("%s: the report has %d tests, %d failures", c.name, tests, failures)
		}
		r.nothing(c.name)
	}
	// Only the image remains in containerd, for the next run in the slot.
	if n := recordsIn(t, r.root+"-runs/0"); n["containers"]+n["sandboxes"]+n["leases"] != 0 || n["snapshots"] != 1 {
		t.Errorf("records left in containerd: %v", n)
	}
}

func TestWhatOnceLeavesIsLookedAfter(t *testing.T) {
	r := newRuns(t)
	code, out, errs := r.do("once", "-o", "json", "-f", r.manifest("web", serving("web")))
	if code != 0 {
		t.Fatalf("exit code %d:\n%s%s", code, out, errs)
	}
	var report struct {
		Run  struct{ Socket string }
		Pods []struct {
			IP    string
			Ports []struct{ HostPort int }
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Pods) != 1 || len(report.Pods[0].Ports) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	if l, err := net.Listen("tcp4", fmt.Sprintf(":%d", report.Pods[0].Ports[0].HostPort)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("its host port is not reserved: %v %v", l, err)
	}
	ask := func(args ...string) string {
		_, out, _ := r.do(append(args, "--socket", report.Run.Socket)...)
		return out
	}
	before := ask("get", "pod", "web", "-o", "json")
	if err := fetch("http://"+report.Pods[0].IP+":8080/", "web\n"); err != nil {
		t.Error(err)
	}
	if got := ask("logs", "web"); got != "I am web\n" {
		t.Errorf("its log is %q", got)
	}
	// Its agent restarts containers that exit, and takes over without a restart.
	if !strings.Contains(before, `"restartCount": 0`) {
		t.Errorf("before: %s", before)
	}
	r.killServer()
	r.eventually("it is started again", func() error {
		if now := ask("get", "pod", "web", "-o", "json"); !strings.Contains(now, `"restartCount": 1`) {
			return errors.New(now)
		}
		return fetch("http://"+report.Pods[0].IP+":8080/", "web\n")
	})
	if code, out, errs := r.do("down", "0"); code != 0 || out != "run 0 removed\n" {
		t.Errorf("down: exit code %d: %s%s", code, out, errs)
	}
}

// servers returns the web servers in the cgroups of the runs, without their children for requests.
func (r *runs) servers() (pids []int) {
	parents := map[int]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		cgroup, _ := os.ReadFile(d + "/cgroup")
		cmdline, _ := os.ReadFile(d + "/cmdline") // nothing of a zombie
		stat, _ := os.ReadFile(d + "/stat")
		var pid, parent int
		var state string
		_, behindName, _ := strings.Cut(string(stat), ") ")
		_, err := fmt.Sscanf(filepath.Base(d)+" "+behindName, "%d %s %d", &pid, &state, &parent)
		if err == nil && bytes.Contains(cgroup, []byte(r.cgroup)) && bytes.HasPrefix(cmdline, []byte("httpd")) {
			parents[pid] = parent
		}
	}
	for pid, parent := range parents {
		if _, child := parents[parent]; !child {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killServer kills the only web server.
func (r *runs) killServer() {
	r.t.Helper()
	pids := r.servers()
	if len(pids) != 1 {
		r.t.Fatalf("the servers %v run", pids)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
}

// fetch requests a page and compares it.
func fetch(url, want string) error {
	c := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && string(b) != want {
		err = fmt.Errorf("page is %q", b)
	}
	return err
}

// getPages requests the page of the pod web, from inside of a command of `up`.
const getPages = `for u in $POD_WEB_IP:$POD_WEB_PORT_HTTP 127.0.0.1:$POD_WEB_HOSTPORT_HTTP; do
	if command -v curl >/dev/null; then curl -fsS http://$u/; else wget -qO- http://$u/; fi || exit 9
done; `

func TestUpsAtTheSameTimeDoNotMeet(t *testing.T) {
	r := newRuns(t)
	file := r.manifest("web", serving("web"))
	const n = 3
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			// Each run checks its pods while all runs are active.
			script := fmt.Sprintf("touch here-%d; for i in $(seq 3000); do [ $(ls here-* | wc -l) = %d ] && break; sleep 0.02; done; %s monopod logs web; echo $POD_WEB_IP; exit %d", i, n, getPages, 40+i)
			code, out, errs := r.do("up", "-f", file, "--wait", "--timeout", "2m", "--", "sh", "-c", script)
			if lines := strings.Split(out, "\n"); code != 40+i || len(lines) != 5 || strings.Join(lines[:3], " ") != "web web I am web" || !inUpperHalf(lines[3], strings.TrimSuffix(r.subnets(), "128.0/17")) {
				t.Errorf("exit code %d:\n%s%s", code, out, errs)
			}
		})
	}
	group.Wait()
	r.nothing("after all")
}

// TestRunsDoNotShareAHostPort is a regression test: the second of two runs silently reached the pods of the first.
func TestRunsDoNotShareAHostPort(t *testing.T) {
	r := newRuns(t)
	port := ports.Take(t)
	first, out, errs := r.command("up", "-f", r.manifest("first", served("first", port)), "--wait", "--", "sh", "-c", "echo begun; cat")
	stdin, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	r.says(out, "begun")
	second, _, said := r.command("up", "-f", r.manifest("second", served("second", port)), "--wait", "--", "touch", "proof")
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	r.eventually("the second waits for the port", func() error {
		out, _ := r.at(1, "why", "second")
		if strings.Contains(out, fmt.Sprintf("host port %d/TCP is taken by pod default/first of another monopod", port)) {
			return nil
		}
		return errors.New(out)
	})
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = second.Wait()
	if _, err := os.Stat(filepath.Join(r.dir, "proof")); err == nil || second.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d, %v:\n%s", second.ProcessState.ExitCode(), err, said)
	}
	_ = stdin.Close()
	if err := first.Wait(); err != nil {
		t.Errorf("%v:\n%s", err, errs)
	}
	r.nothing("after both")
}

func TestUpDoesNotRunItsCommandWithoutItsPods(t *testing.T) {
	r := newRuns(t)
	code, out, errs := r.do("up", "-f", r.manifest("both", serving("web")+"---"+running("bad", "echo no luck; exit 3")), "--json", "report.json", "--min-ready", "10s", "--", "touch", "proof")
	if _, err := os.Stat(filepath.Join(r.dir, "proof")); code != 125 || err == nil || out != "" || !strings.Contains(errs, "no luck") {
		t.Errorf("exit code %d, %v:\n%s%s", code, err, out, errs)
	}
	if text := r.read("report.json"); !strings.Contains(text, "container main ended with exit code 3") || !strings.Contains(text, `"text": "no luck\n"`) {
		t.Errorf("report: %s", text)
	}
}

func TestSignalsGoToTheCommandOfUp(t *testing.T) {
	r := newRuns(t)
	file := r.manifest("web", serving("web"))
	c, out, errs := r.command("up", "-f", file, "--", "sh", "-c", "trap 'echo caught; exit 5' INT; echo begun; while :; do sleep 0.1; done")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // with a terminal, SIGINT would be taken for one that it has sent to the command
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	r.says(out, "begun")
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if code := c.ProcessState.ExitCode(); code != 5 || out.String() != "begun\ncaught\n" {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
	r.nothing("after SIGINT")

	// While the pods start, a signal stops the run.
	slow := r.manifest("slow", strings.Replace(serving("slow"), "path: /,", "path: /missing,", 1))
	c, _, errs = r.command("up", "-f", slow, "--", "true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	r.eventually("a pod runs", func() error {
		out, err := r.at(0, "get", "pods")
		if err == nil && !strings.Contains(out, "Running") {
			err = errors.New(out)
		}
		return err
	})
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if code := c.ProcessState.ExitCode(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d:\n%s", code, errs)
	}
}

// says waits until a process has printed something.
func (r *runs) says(out *syncBuffer, want string) {
	r.t.Helper()
	r.eventually("it says "+want, func() error {
		if !out.contains(want) {
			return fmt.Errorf("it says %q", out)
		}
		return nil
	})
}

// at runs a command against the agent of a run.
func (r *runs) at(run int, args ...string) (string, error) {
	c := exec.Command(filepath.Join(r.bin, "monopod-client"), append(args, "--socket", fmt.Sprintf("%s-runs/%d/monopod.sock", r.run, run))...)
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestWhatAKilledUpLeftIsRemovedByTheNextAndByCleanupAndLiveOnesStay(t *testing.T) {
	r := newRuns(t)
	file := r.manifest("web", serving("web"))
	live, out, errs := r.command("up", "-f", file, "--until-eof")
	stdin, err := live.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := live.Start(); err != nil {
		t.Fatal(err)
	}
	r.says(out, "Ctrl-C")
	for _, next := range [][]string{{"up", "-f", file, "--", "true"}, {"cleanup", "--runs"}} {
		c, out, _ := r.command("up", "-f", file, "--", "sh", "-c", "echo $$; exec sleep 1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		r.says(out, "\n")
		r.eventually("both serve", func() error { // `up` waits for addresses only
			if pids := r.servers(); len(pids) != 2 {
				return fmt.Errorf("the servers %v run", pids)
			}
			return nil
		})
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		command := strings.TrimSpace(out.String())
		r.eventually("its command has ended, too", func() error {
			stat, err := os.ReadFile("/proc/" + command + "/stat")
			if err == nil && !strings.Contains(string(stat), ") Z ") {
				return fmt.Errorf("process %s is there: %s", command, stat)
			}
			return nil
		})
		if pids := r.servers(); len(pids) != 2 {
			t.Errorf("the pod ended with its agent: of two servers run %v", pids)
		}
		code, _, errs := r.do(next...)
		if pids := r.servers(); len(pids) != 1 {
			t.Errorf("after %v the servers %v run instead of that of the live one", next, pids)
		}
		if code != 0 || !strings.Contains(errs, "leftovers of a killed run (run 1)") {
			t.Errorf("%v: exit code %d: %s", next, code, errs)
		}
		if files, _ := filepath.Glob(r.root + "-runs/1/run.yaml"); len(files) > 0 {
			t.Errorf("after %v there is %v", next, files)
		}
		if out, err := r.at(0, "get", "pods"); err != nil || !hasLine(out, "web", "1/1", "Running", "0") {
			t.Errorf("after %v the live one is: %v %s", next, err, out)
		}
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := live.Wait(); err != nil {
		t.Errorf("the live one: %v\n%s", err, errs)
	}
}

func hasLine(text string, words ...string) bool {
	for line := range strings.Lines(text) {
		if strings.Contains(strings.Join(strings.Fields(line), " "), strings.Join(words, " ")) {
			return true
		}
	}
	return false
}

func TestFixturesGiveATestItsPods(t *testing.T) {
	r := newRuns(t)
	for _, v := range r.env {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "MONOPOD") {
			t.Setenv(name, value)
		}
	}
	file := r.manifest("both", serving("web")+"---"+running("job", "nc -l -p 81; sleep 1; echo counted"))
	t.Run("a test", func(t *testing.T) {
		r.t = t
		all := []*fixture.Pods{fixture.Up(t, file), fixture.Up(t, file)}
		for _, pods := range all {
			if err := errors.Join(fetch("http://"+pods.Addr("web", "http")+"/", "web\n"), fetch(fmt.Sprintf("http://127.0.0.1:%d/", pods.HostPort("web", "")), "web\n")); err != nil {
				t.Error(err)
			}
			r.eventually("the job is told to go on, so that it has not ended yet", func() error {
				c, err := net.Dial("tcp", net.JoinHostPort(pods.IP("job"), "81"))
				if err == nil {
					err = c.Close()
				}
				return err
			})
			pods.Wait("job", fixture.Succeeded, patience)
			if got := pods.Logs("job", ""); got != "counted\n" {
				t.Errorf("its log is %q", got)
			}
			pods.Wait("web", fixture.Ready, patience)
		}
		if all[0].IP("web") == all[1].IP("web") || all[0].HostPort("web", "http") == all[1].HostPort("web", "http") {
			t.Error("both have the same pod")
		}
	})
	r.t = t
	r.nothing("after the test")
}

// TestTheWorkflowOfTheExampleWorks runs the steps of examples/ci/workflow.yml that do not need GitHub.
func TestTheWorkflowOfTheExampleWorks(t *testing.T) {
	r := newRuns(t)
	testimages.Archive(t, filepath.Join(r.dir, "images", "example.tar"), exampleImage)
	b, err := os.ReadFile("../examples/ci/workflow.yml")
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct{ Name, Run string }
		}
	}
	if err := yaml.Unmarshal(b, &workflow); err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join(r.dir, "programs")
	if err := os.Mkdir(programs, 0o755); err != nil {
		t.Fatal(err)
	}
	// The test machine may lack sudo; the tests run as root anyway.
	if err := os.WriteFile(filepath.Join(programs, "sudo"), []byte("#!/bin/sh\ncase $1 in --*) shift;; esac\nexec \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	repository := filepath.Join(r.dir, "repository")
	if out, err := exec.Command("sh", "-c", "mkdir -p "+repository+"/examples && cp -r ../examples/ci "+repository+"/examples/").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	environment := filepath.Join(r.dir, "github-env")
	n := 0
	for _, step := range workflow.Jobs["test"].Steps {
		if !strings.HasPrefix(step.Name, "Run ") && !strings.HasPrefix(step.Name, "Show ") {
			continue
		}
		n++
		c := exec.Command("bash", "-eo", "pipefail", "-c", step.Run) // as GitHub does
		c.Dir = repository
		later, _ := os.ReadFile(environment)
		c.Env = slices.Concat(r.env, []string{"GITHUB_ENV=" + environment, "PATH=" + programs + ":" + r.bin + ":" + os.Getenv("PATH")}, strings.Fields(string(later)))
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", step.Name, err, out)
		}
	}
	if n != 6 {
		t.Errorf("%d steps were run", n)
	}
	for file, want := range map[string]int{"smoke.xml": 1, "pods.xml": 2} {
		if tests, failures := junit(t, filepath.Join(repository, file)); tests != want || failures != 0 {
			t.Errorf("%s has %d tests, %d failures", file, tests, failures)
		}
	}
}
