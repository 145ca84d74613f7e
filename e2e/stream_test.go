//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"
)

// streamPod is a pod for exec, attach and port-forward: it answers on a port, and reads its standard input.
const streamPod = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 1000, runAsGroup: 1000}
  containers:
  - name: app
    image: ` + image + `
    command: [sh, -c, "exec httpd -f -h /etc -p 8080"]
  - name: shell
    image: ` + image + `
    stdin: true
    tty: true
    command: [sh, -c, "while read line; do echo \"read $line\"; done; exec sleep 1000"]
`

// TestReachingIntoPods shares one agent: exec, attach, port-forward, and their leftovers.
func TestReachingIntoPods(t *testing.T) {
	t.Parallel()
	in := newInstanceForUsers(t)
	in.put("web", streamPod)
	in.start()
	in.ready("web")
	t.Run("exit code and streams", func(t *testing.T) {
		cmd := in.command("exec", "-i", "web", "-c", "app", "--", "sh", "-c", `id -u; cat; echo error >&2; exit 3`)
		cmd.Stdin = strings.NewReader("typed\n")
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != 3 || out.String() != "1000\ntyped\n" || errs.String() != "error\ncommand terminated with exit code 3\n" {
			t.Errorf("%v, %q, %q", err, out.String(), errs.String())
		}
	})
	t.Run("terminal", func(t *testing.T) { testTerminalOfExec(t, in) })
	t.Run("attach", func(t *testing.T) { testTerminalOfAttach(t, in) })
	t.Run("port-forward", func(t *testing.T) { testPortForward(t, in) })
	t.Run("cp", func(t *testing.T) { testCopy(t, in) })
	t.Run("confined", func(t *testing.T) { testConfinedCommand(t, in) })
	t.Run("top", func(t *testing.T) { testTop(t, in) })
	t.Run("many", func(t *testing.T) { testManyCommands(t, in) })
	t.Run("kill of the agent", func(t *testing.T) { testKillDuringExec(t, in) })
}

// newInstanceForUsers is an instance whose pods may have user namespaces: in the VM, /tmp is a tmpfs, which its kernel cannot id-map, and
// the users need access to their root file systems.
func newInstanceForUsers(t *testing.T, extra ...string) *instance {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	dir, err := os.MkdirTemp("/var/tmp", "monopod-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	in := newInstanceIn(t, dir, extra...)
	t.Cleanup(in.cleanup)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(in.state), 0o711)); err != nil {
		t.Fatal(err)
	}
	return in
}

// command returns a monopod command that has not been started.
func (in *instance) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(in.bin, "monopod-client"), args...)
	cmd.Env = append(os.Environ(), "MONOPOD_SOCKET="+filepath.Join(in.state, "monopod.sock"))
	return cmd
}

// typist controls a program in a terminal.
type typist struct {
	t   *testing.T
	pty console.Console
	cmd *exec.Cmd
	out *syncBuffer
}

// inTerminal starts monopod in a new terminal.
func (in *instance) inTerminal(t *testing.T, args ...string) *typist {
	t.Helper()
	pty, name, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	if err := pty.Resize(console.WinSize{Width: 90, Height: 20}); err != nil {
		t.Fatal(err)
	}
	p := &typist{t: t, pty: pty, cmd: in.command(args...), out: &syncBuffer{}}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(p.out, pty) }()
	t.Cleanup(func() { _ = pty.Close() })
	return p
}

func (p *typist) types(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.pty, text); err != nil {
		p.t.Fatal(err)
	}
}

func (p *typist) sees(in *instance, text string) {
	p.t.Helper()
	in.eventually(fmt.Sprintf("the terminal shows %q", text), func() error {
		if !strings.Contains(p.out.String(), text) {
			return fmt.Errorf("%q", p.out.String())
		}
		return nil
	})
}

// ends waits for the program to exit, and checks that the terminal settings were restored.
func (p *typist) ends(code int) {
	p.t.Helper()
	_ = p.cmd.Wait()
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d, want %d: %q", got, code, p.out.String())
	}
	state, err := unix.IoctlGetTermios(int(p.pty.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	if state.Lflag&unix.ICANON == 0 || state.Lflag&unix.ECHO == 0 || state.Iflag&unix.ICRNL == 0 {
		p.t.Errorf("the terminal was not restored: %+v", state)
	}
}

func testTerminalOfExec(t *testing.T, in *instance) {
	p := in.inTerminal(t, "exec", "-it", "web", "-c", "app", "--", "sh")
	p.types("tty; echo $((6 * 7)) $TERM\r")
	p.sees(in, "/dev/pts/0\r\n42 xterm")
	p.types("stty size\r")
	p.sees(in, "20 90")
	if err := p.pty.Resize(console.WinSize{Width: 70, Height: 33}); err != nil {
		t.Fatal(err)
	}
	in.eventually("the terminal there has the new size", func() error {
		p.types("stty size\r")
		if !strings.Contains(p.out.String(), "33 70") {
			return errors.New(p.out.String())
		}
		return nil
	})
	p.types("sleep 7654\r")
	in.eventually("it runs", func() error { return want(in, 1, "sleep", "7654") })
	p.types("\x03") // goes there, and ends what runs there
	in.eventually("it has ended", func() error { return want(in, 0, "sleep", "7654") })
	p.types("exit 9\r")
	p.ends(9)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		p = in.inTerminal(t, "exec", "-it", "web", "-c", "app", "--", "sh", "-c", "echo ready; sleep 7655")
		p.sees(in, "ready")
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		p.ends(128 + int(sig))
		in.eventually("it has ended there", func() error { return want(in, 0, "sleep", "7655") })
	}
}

// want reports whether n processes have a command line.
func want(_ *instance, n int, args ...string) error {
	found := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && string(b) == strings.Join(args, "\x00")+"\x00" {
			found++
		}
	}
	if found != n {
		return fmt.Errorf("%d processes %q", found, args)
	}
	return nil
}

func testTerminalOfAttach(t *testing.T, in *instance) {
	for i := range 2 { // the first one leaves the container running
		p := in.inTerminal(t, "attach", "-it", "web", "-c", "shell")
		p.sees(in, "press")
		p.types(fmt.Sprintf("line %d\r", i))
		p.sees(in, fmt.Sprintf("read line %d\r\n", i))
		p.types("\x10\x11")
		p.ends(0)
	}
	in.eventually("the log has both lines", func() error {
		out, err := in.run("logs", "web", "-c", "shell")
		if err == nil && (!strings.Contains(out, "read line 0") || !strings.Contains(out, "read line 1")) {
			err = fmt.Errorf("%q", out)
		}
		return err
	})
}

func testPortForward(t *testing.T, in *instance) {
	cmd := in.command("port-forward", "web", ":8080")
	out := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var address string
	in.eventually("it listens", func() error {
		_, err := fmt.Sscanf(out.String(), "Forwarding from %s -> 8080", &address)
		return err
	})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
			res, err := c.Get("http://" + address + "/passwd")
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if b, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(b), "root:") {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	wg.Wait()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// testManyCommands: fifty concurrent commands, half of them cut off, leave nothing behind.
func testManyCommands(t *testing.T, in *instance) {
	fds := func() int {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", in.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := fds()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if i%2 == 0 {
				out, err := in.run("exec", "web", "-c", "app", "--", "echo", fmt.Sprint(i))
				if err != nil || out != fmt.Sprintf("%d\n", i) {
					t.Errorf("%q, %v", out, err)
				}
				return
			}
			cmd := in.command("exec", "web", "-c", "app", "--", "sh", "-c", "echo; exec sleep 7656")
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err == nil {
				_, err = out.Read(make([]byte, 1))
			}
			if err != nil {
				t.Error(err)
				return
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	wg.Wait()
	in.eventually("no process is left", func() error { return want(in, 0, "sleep", "7656") })
	in.eventually("no FIFO and no file is left open", func() error {
		left, err := os.ReadDir(filepath.Join(in.state, "exec"))
		if now := fds(); err != nil || len(left) > 0 || now > before {
			return fmt.Errorf("%d FIFOs, %d files, %d before: %w", len(left), now, before, err)
		}
		return nil
	})
}

// testKillDuringExec: the next agent cleans up, and the containers are not affected.
func testKillDuringExec(t *testing.T, in *instance) {
	before := in.ready("web")
	cmd := in.command("exec", "web", "-c", "app", "--", "sh", "-c", "echo; exec sleep 7657")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	in.kill9()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("the client: %v", err)
	}
	in.eventually("the command runs on", func() error { return want(in, 1, "sleep", "7657") })
	in.start()
	in.eventually("the command has ended", func() error { return want(in, 0, "sleep", "7657") })
	in.eventually("no FIFO is left", func() error {
		if left, err := os.ReadDir(filepath.Join(in.state, "exec")); err != nil || len(left) > 0 {
			return fmt.Errorf("%d: %w", len(left), err)
		}
		return nil
	})
	after := in.ready("web")
	for i, s := range after.Status.ContainerStatuses {
		if s.ContainerID != before.Status.ContainerStatuses[i].ContainerID || s.RestartCount != 0 {
			t.Errorf("container %s is another one", s.Name)
		}
	}
}

// bare is a pod whose second container contains only one program: no shell, no tar.
func bare(name, more string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
%s
  containers:
  - name: app
    image: %s
    command: [sh, -c, "rm -rf /bin/tar; ln -s /etc/hosts /link; ln -s /data /app; mkdir -m 777 /open; exec sleep 1000"]
    readinessProbe: {exec: {command: [test, -d, /open]}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}, {name: mem, mountPath: /mem}]
  - name: closed
    image: %[3]s
    command: [sleep, "1000"]
    securityContext: {readOnlyRootFilesystem: true, runAsUser: 1000}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}, {name: mem, emptyDir: {medium: Memory}}]
`, name, more, image)
}

// testCopy copies into pods and out of them, with the users of the machine and in user namespaces.
func testCopy(t *testing.T, in *instance) {
	in.put("bare", bare("bare", "  securityContext: {fsGroup: 3000}"))
	in.put("own", bare("own", "  hostUsers: false\n  securityContext: {runAsGroup: 2000, fsGroup: 3000}"))
	local := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(local, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("tree/script", "#!/bin/sh\n", 0o755)
	write("tree/sub/secret", strings.Repeat("large", 1<<20), 0o600)
	for _, pod := range []string{"bare", "own"} {
		in.ready(pod)
		at := func(path string) string { return pod + ":" + path }
		group := map[string]string{"bare": "0", "own": "2000"}[pod]
		for _, c := range []struct{ container, from, to, look, want string }{
			{"app", "tree", at("/open"), "/open/tree/script /open/tree/sub/secret", "0:" + group + " 755 10\n0:" + group + " 600 5242880\n"},
			{"app", "tree/script", at("/app/renamed"), "/data/renamed", "0:3000 755 10\n"}, // the directory gives its group on
			{"app", "tree/sub/.", at("/mem"), "/mem/secret", "0:3000 600 5242880\n"},
			{"closed", "tree/script", at("/data"), "/data/script", "1000:3000 755 10\n"},
		} {
			if out, err := in.command("cp", filepath.Join(local, c.from)+map[bool]string{true: "/."}[strings.HasSuffix(c.from, "/.")], c.to, "-c", c.container).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s to %s: %v, %s", c.from, c.to, err, out)
			}
			if out, err := in.run(append([]string{"exec", "-q", pod, "-c", c.container, "--", "stat", "-c", "%u:%g %a %s"}, strings.Fields(c.look)...)...); err != nil || out != c.want {
				t.Errorf("%s: %v, %s, want %s", c.to, err, out, c.want)
			}
		}
		for to, want := range map[string]string{
			"/etc/new":              "monopod: script: read-only file system in container closed: write to a volume, an emptyDir for example, that is not read-only\n",
			"/sys/new":              "monopod: script: these are virtual files of the kernel; they cannot be written\n",
			"/proc/1/oom_score_adj": "monopod: script: these are virtual files of the kernel; they cannot be written\n",
		} {
			out, err := in.command("cp", filepath.Join(local, "tree", "script"), at(to), "-c", "closed").CombinedOutput()
			if err == nil || string(out) != want {
				t.Errorf("%s: %v, %s", to, err, out)
			}
		}
		back := filepath.Join(t.TempDir(), "back")
		if out, err := in.command("cp", at("/open/tree"), back, "-c", "app").CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("back: %v, %s", err, out)
		}
		if out, err := exec.Command("diff", "-r", filepath.Join(local, "tree"), back).CombinedOutput(); err != nil {
			t.Errorf("%v, %s", err, out)
		}
		if b, err := os.ReadFile("/etc/hosts"); err != nil || string(b) == in.copied(t, at("/link")) {
			t.Errorf("the link leads out of the container: %v, %s", err, b)
		}
		whole := filepath.Join(t.TempDir(), "whole")
		if out, err := in.command("cp", at("/"), whole, "-c", "app").CombinedOutput(); err != nil || !strings.Contains(string(out), "proc was skipped: it is a virtual file of the kernel") {
			t.Errorf("all: %v, %s", err, out)
		}
		if st, err := os.Stat(filepath.Join(whole, "bin", "busybox")); err != nil || st.Size() < 1000 {
			t.Errorf("all: %v, %v", st, err)
		}
	}
	in.drop("own")
	in.gone("own")
	if out, err := in.command("cp", "own:/", local).CombinedOutput(); err == nil || !strings.Contains(string(out), `pod "own" not found`) {
		t.Errorf("%v, %s", err, out)
	}
}

// copied returns a file copied from a container.
func (in *instance) copied(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "file")
	if out, err := in.command("cp", from, to, "-c", "app").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v, %s", from, err, out)
	}
	b, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// testConfinedCommand: a command has the confinement and the environment of the container's own process.
func testConfinedCommand(t *testing.T, in *instance) {
	profiles := filepath.Join(in.dir, "root", "seccomp")
	if err := os.MkdirAll(profiles, 0o755); err != nil {
		t.Fatal(err)
	}
	in.write(filepath.Join(profiles, "nodirs.json"), `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}`)
	const look = `grep -E "^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp|Seccomp_filters|Cpus_allowed_list):" /proc/self/status; cat /proc/self/oom_score_adj /proc/self/limits; ` +
		`echo "$PASSWORD $HOSTNAME"; pwd; for ns in mnt net ipc uts pid cgroup; do readlink /proc/self/ns/$ns; done; cat /proc/self/cgroup; mkdir /tmp/x 2>&1`
	in.put("confined", fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {password: very-secret-5317}
---
apiVersion: v1
kind: Pod
metadata: {name: confined}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: %s
    workingDir: /var
    resources: {limits: {memory: 64Mi, cpu: 500m}}
    env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: hidden, key: password}}}]
    securityContext:
      runAsUser: 1234
      runAsGroup: 2345
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
      seccompProfile: {type: Localhost, localhostProfile: nodirs.json}
    command: [sh, -c, %q]
`, image, look+`; echo done; exec sleep 1000`))
	own := in.says("confined")
	out, err := in.run("exec", "confined", "--", "sh", "-c", look+"; true")
	if got := strings.Join(strings.Fields(out), " "); err != nil || got != own {
		t.Errorf("%v, a command has\n%s\nthe container\n%s", err, got, own)
	}
	for _, want := range []string{"very-secret-5317", "Seccomp: 2", "NoNewPrivs: 1", "CapEff: 0000000000000000", "Uid: 1234", "mkdir: can't create directory '/tmp/x': Operation not permitted"} {
		if !strings.Contains(own, want) {
			t.Errorf("no %s in %s", want, own)
		}
	}
	// Only the process has the secret: it is neither in the spec in containerd nor in the arguments of runc.
	p := in.inTerminal(t, "exec", "-it", "confined", "--", "sh", "-c", "echo $PASSWORD; sleep 7658")
	p.sees(in, "very-secret-5317")
	found, err := exec.Command("grep", "-rl", "--devices=skip", "--exclude-dir=ns", "very-secret-5317", in.state, filepath.Join(in.dir, "root")).CombinedOutput()
	if err != nil && len(found) > 0 {
		t.Fatal(err, string(found))
	}
	for line := range strings.Lines(string(found)) {
		if !strings.Contains(line, "/secrets/") {
			t.Errorf("the secret is in %s", line)
		}
	}
	p.types("\x03")
	_ = p.cmd.Wait()
}

// testTop compares the output with the values of the kernel.
func testTop(t *testing.T, in *instance) {
	out, err := in.run("top", "containers", "web", "--sort-by", "memory")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil || len(lines) != 3 || strings.Join(strings.Fields(lines[0]), " ") != "NAMESPACE POD NAME CPU(cores) MEMORY(bytes)" {
		t.Fatalf("%v, %s", err, out)
	}
	var cpu, memory int
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		if _, err := fmt.Sscanf(f[3]+" "+f[4], "%dm %dMi", &cpu, &memory); err != nil || memory > 40 || cpu > 500 {
			t.Errorf("%s: %v", line, err)
		}
	}
	out, err = in.run("top", "node")
	var percent, share int
	f := strings.Fields(out)
	if err != nil || len(f) != 10 {
		t.Fatalf("%v, %s", err, out)
	}
	// The first measurement lasts 100 ms, and the kernel counts up to a tick of at most 10 ms late.
	if _, err := fmt.Sscanf(strings.Join(f[6:], " "), "%dm %d%% %dMi %d%%", &cpu, &percent, &memory, &share); err != nil || percent > 110 || share > 100 || memory < 50 {
		t.Errorf("%v, %s", err, out)
	}
}
