//go:build e2e

package embed_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	eventstypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sys/unix"

	"monopod/e2e/testbed"
	"monopod/e2e/testimages"
	"monopod/runner/ctrd/embed"
	"monopod/runner/ctrd/shim"
)

// childEnv is the directory for TestChildRunsContainers, which runs in a process of its own.
const childEnv = "EMBED_TEST_DIR"

func config(dir string) embed.Config {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return embed.Config{Root: filepath.Join(dir, "root"), State: filepath.Join(dir, "state"), Log: log}
}

// directory returns a new short directory for an instance; unix sockets do not like t.TempDir's long names.
func directory(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs containers")
	}
	dir, err := os.MkdirTemp("/run", "mp-embed-") // t.TempDir is too long for sockets
	check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			sweep(dir)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("the instance leaves something behind: %v", err)
		}
	})
	return dir
}

// sweep ends what a failed test left.
func sweep(dir string) {
	states, _ := filepath.Glob(filepath.Join(dir, "runc", embed.Namespace, "*"))
	for _, s := range states {
		_ = exec.Command("runc", "--root", filepath.Dir(s), "delete", "--force", filepath.Base(s)).Run()
	}
	cwds, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, p := range cwds {
		cwd, _ := os.Readlink(p)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		if err == nil && strings.HasPrefix(cwd, dir+"/state/") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	_ = mount.UnmountRecursive(dir, unix.MNT_DETACH)
}

func start(t *testing.T, dir string) (*client.Client, func()) {
	t.Helper()
	c, stop, err := embed.Start(ctx(t), config(dir))
	check(t, err)
	stopped := false
	done := func() {
		if !stopped {
			stopped = true
			check(t, stop(context.Background()))
		}
	}
	t.Cleanup(done)
	return c, done
}

// ctx is the test's context with the namespace: in-process calls do not get the client's default one.
func ctx(t *testing.T) context.Context {
	t.Helper()
	return namespaces.WithNamespace(t.Context(), embed.Namespace)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a condition of the outside world.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(testbed.Patience()); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// shimBinary builds the shim for a directory. The build cache makes it cheap.
func shimBinary(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, shim.BinaryName)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "no_grpc", "-o", path, "monopod/cmd/containerd-shim-monopod-v2")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

const imageName = "docker.io/library/test:1"

func image(t *testing.T, c *client.Client) client.Image {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.tar")
	testimages.Archive(t, path, imageName)
	f, err := os.Open(path)
	check(t, err)
	defer func() { _ = f.Close() }()
	ctx := ctx(t)
	_, err = c.Import(ctx, f, client.WithIndexName(""), client.WithImageRefTranslator(archive.AddRefPrefix("docker.io/library")))
	check(t, err)
	img, err := c.GetImage(ctx, imageName)
	check(t, err)
	check(t, img.Unpack(ctx, ""))
	return img
}

// box is one container with its FIFOs and exit file.
type box struct {
	t              *testing.T
	id, dir        string
	stdout, stderr string
	exitFile       string
}

func newBox(t *testing.T, dir, id string) *box {
	t.Helper()
	b := &box{t: t, id: id, dir: dir}
	b.paths()
	check(t, unix.Mkfifo(b.stdout, 0o600))
	check(t, unix.Mkfifo(b.stderr, 0o600))
	return b
}

func (b *box) paths() {
	b.exitFile = filepath.Join(b.dir, "exits", b.id)
	b.stdout, b.stderr = filepath.Join(b.dir, b.id+".out"), filepath.Join(b.dir, b.id+".err")
}

// fifos is a cio.IO that opens nothing. The caller reads the FIFOs.
type fifos struct{ cfg cio.Config }

func (f fifos) Config() cio.Config { return f.cfg }
func (fifos) Cancel()              {}
func (fifos) Wait()                {}
func (fifos) Close() error         { return nil }

func (b *box) create(c *client.Client, script string, opts ...oci.SpecOpts) client.Task {
	b.t.Helper()
	ctx := ctx(b.t)
	img, err := c.GetImage(ctx, imageName)
	if errdefs.IsNotFound(err) {
		img = image(b.t, c)
	}
	opts = append([]oci.SpecOpts{
		oci.WithImageConfig(img), oci.WithProcessArgs("sh", "-c", script),
		oci.WithAnnotations(map[string]string{shim.AnnotationExitFile: b.exitFile}),
		oci.WithCgroup("/" + filepath.Base(b.dir) + "-" + b.id),
	}, opts...)
	cont, err := c.NewContainer(ctx, b.id, client.WithSnapshotter(""), client.WithNewSnapshot(b.id, img),
		client.WithRuntime(shimBinary(b.t, b.dir), &options.Options{Root: filepath.Join(b.dir, "runc")}), client.WithNewSpec(opts...))
	check(b.t, err)
	task, err := cont.NewTask(ctx, func(string) (cio.IO, error) {
		return fifos{cio.Config{Stdout: b.stdout, Stderr: b.stderr}}, nil
	})
	check(b.t, err)
	return task
}

func (b *box) run(c *client.Client, script string, opts ...oci.SpecOpts) client.Task {
	b.t.Helper()
	task := b.create(c, script, opts...)
	check(b.t, task.Start(ctx(b.t)))
	return task
}

func (b *box) load(c *client.Client) client.Task {
	b.t.Helper()
	cont, err := c.LoadContainer(ctx(b.t), b.id)
	check(b.t, err)
	task, err := cont.Task(ctx(b.t), nil)
	check(b.t, err)
	return task
}

func (b *box) remove(c *client.Client) {
	b.t.Helper()
	ctx := context.WithoutCancel(ctx(b.t))
	cont, err := c.LoadContainer(ctx, b.id)
	check(b.t, err)
	if task, err := cont.Task(ctx, nil); err == nil {
		_, err = task.Delete(ctx, client.WithProcessKill)
		check(b.t, err)
	}
	check(b.t, cont.Delete(ctx, client.WithSnapshotCleanup))
}

// output reads a FIFO to its end, which comes when the shim has closed it too.
func output(t *testing.T, path string) <-chan string {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	check(t, err)
	ch := make(chan string, 1)
	go func() {
		defer func() { _ = f.Close() }()
		b, _ := io.ReadAll(f)
		ch <- string(b)
	}()
	return ch
}

func (b *box) record() *shim.ExitRecord {
	b.t.Helper()
	r, err := shim.ReadExitRecord(b.exitFile)
	check(b.t, err)
	return r
}

func TestContainerRunsAndItsExitIsRecordedBeforeTheEvent(t *testing.T) {
	dir := directory(t)
	c, _ := start(t, dir)
	b := newBox(t, dir, "c1")
	events, errs := c.Subscribe(ctx(t), `topic=="/tasks/exit"`)
	task := b.create(c, "echo out; echo err >&2; exit 7")
	stdout, stderr := output(t, b.stdout), output(t, b.stderr)
	check(t, task.Start(ctx(t)))
	select {
	case env := <-events:
		r := b.record()
		v, err := typeurl.UnmarshalAny(env.Event)
		check(t, err)
		e := v.(*eventstypes.TaskExit)
		if r.ExitCode != 7 || e.ExitStatus != 7 || r.OOMKilled || !r.ExitedAt.Equal(e.ExitedAt.AsTime()) {
			t.Errorf("record %+v, event %+v", r, e)
		}
		if env.Namespace != embed.Namespace {
			t.Errorf("namespace %q", env.Namespace)
		}
	case err := <-errs:
		t.Fatal(err)
	case <-time.After(testbed.Patience()):
		t.Fatal("no exit event")
	}
	b.remove(c)
	if got := <-stdout; got != "out\n" {
		t.Errorf("stdout %q", got)
	}
	if got := <-stderr; got != "err\n" {
		t.Errorf("stderr %q", got)
	}
}

func TestOOMKillIsRecorded(t *testing.T) {
	dir := directory(t)
	c, _ := start(t, dir)
	b := newBox(t, dir, "c1")
	task := b.run(c, "x=aaaaaaaa; while :; do x=$x$x; done", oci.WithMemoryLimit(16<<20))
	wait, err := task.Wait(ctx(t))
	check(t, err)
	st := <-wait
	if r := b.record(); !r.OOMKilled || r.ExitCode != 137 || st.ExitCode() != 137 {
		t.Errorf("record %+v, status %d", r, st.ExitCode())
	}
	b.remove(c)

	b = newBox(t, dir, "c2")
	task = b.run(c, "kill -9 $$", oci.WithMemoryLimit(16<<20), oci.WithHostNamespace("pid"))
	wait, err = task.Wait(ctx(t))
	check(t, err)
	<-wait
	if r := b.record(); r.OOMKilled || r.ExitCode != 137 {
		t.Errorf("killed by a signal, not by the kernel: %+v", r)
	}
	b.remove(c)
}

func TestOutputOfAContainerThatEndedUnreadStaysInTheFifo(t *testing.T) {
	dir := directory(t)
	c, _ := start(t, dir)
	b := newBox(t, dir, "c1")
	task := b.run(c, "i=0; while [ $i -lt 4000 ]; do echo line $i of what must not be lost; i=$((i+1)); done; echo last >&2")
	wait, err := task.Wait(ctx(t))
	check(t, err)
	<-wait // nobody read: 150 kB are in the FIFO, more than a pipe holds by default
	stdout, stderr := output(t, b.stdout), output(t, b.stderr)
	b.remove(c)
	if got := <-stdout; strings.Count(got, "\n") != 4000 || !strings.HasSuffix(got, "line 3999 of what must not be lost\n") {
		t.Errorf("%d lines", strings.Count(got, "\n"))
	}
	if got := <-stderr; got != "last\n" {
		t.Errorf("stderr %q", got)
	}
}

func TestContainerHasNoDescriptorsOfTheShim(t *testing.T) {
	dir := directory(t)
	c, _ := start(t, dir)
	b := newBox(t, dir, "c1")
	task := b.run(c, "exec sleep 1000")
	eventually(t, "the shell became sleep", func() bool {
		cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", task.Pid()))
		return strings.HasPrefix(string(cmd), "sleep")
	})
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", task.Pid()))
	check(t, err)
	for _, fd := range fds {
		if len(fd.Name()) > 1 || fd.Name() > "2" {
			to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", task.Pid(), fd.Name()))
			t.Errorf("fd %s -> %s", fd.Name(), to)
		}
	}
	b.remove(c)
}

func TestSecondInstanceOnOneDirectoryIsRefusedAtOnce(t *testing.T) {
	dir := directory(t)
	_, stop := start(t, dir)
	began := time.Now()
	_, _, err := embed.Start(ctx(t), config(dir))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("in use by another monopod (process %d)", os.Getpid())) {
		t.Errorf("error %v", err)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("it took %s", d)
	}
	other := config(dir)
	other.Root = filepath.Join(dir, "root2")
	if _, _, err := embed.Start(ctx(t), other); err == nil {
		t.Error("two instances share a state directory")
	}
	stop()
	_, stop2 := start(t, dir)
	stop2()
}

func TestInstancesRunSideBySide(t *testing.T) {
	d1, d2 := directory(t), directory(t)
	c1, _ := start(t, d1)
	c2, _ := start(t, d2)
	b1, b2 := newBox(t, d1, "same"), newBox(t, d2, "same")
	t1, t2 := b1.run(c1, "exec sleep 1000"), b2.run(c2, "exec sleep 1000")
	if t1.Pid() == t2.Pid() {
		t.Error("one process for two containers")
	}
	b1.remove(c1)
	if st, err := t2.Status(ctx(t)); err != nil || st.Status != client.Running {
		t.Errorf("the other instance's container: %v, %v", st, err)
	}
	b2.remove(c2)
	if left, _ := filepath.Glob(d2 + "/state/s/*"); len(left) > 0 {
		eventually(t, "sockets are gone", func() bool { l, _ := filepath.Glob(d2 + "/state/s/*"); return len(l) == 0 })
	}
}

func TestRestartInOneProcessKeepsContainers(t *testing.T) {
	dir := directory(t)
	c, stop := start(t, dir)
	b := newBox(t, dir, "c1")
	pid := b.run(c, "exec sleep 1000").Pid()
	for range 3 {
		stop()
		c, stop = start(t, dir)
		task := b.load(c)
		if st, err := task.Status(ctx(t)); err != nil || st.Status != client.Running || task.Pid() != pid {
			t.Fatalf("status %v, %v; pid %d, want %d", st, err, task.Pid(), pid)
		}
	}
	b.remove(c)
}

// TestChildRunsContainers is not a test but the process that TestKillNine kills: an instance with three containers.
func TestChildRunsContainers(t *testing.T) {
	dir := os.Getenv(childEnv)
	if dir == "" {
		return // in the ordinary run
	}
	c, _ := start(t, dir)
	b := newBox(t, dir, "stays")
	pid := b.run(c, "exec sleep 1000").Pid()
	newBox(t, dir, "ends").run(c, "until [ -e /tmp/go ]; do sleep 0.05; done; echo the end; exit 3",
		withBind(filepath.Join(dir, "tmp"), "/tmp"))
	newBox(t, dir, "dies").run(c, "exec sleep 1000")
	fmt.Printf("\npid %d\n", pid)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestNativeSnapshotterWorksWhereOverlayfsDoesNot(t *testing.T) {
	dir := directory(t)
	cfg := config(dir)
	cfg.Snapshotter = embed.Native
	c, stop, err := embed.Start(t.Context(), cfg)
	check(t, err)
	defer func() { check(t, stop(context.Background())) }()
	path := filepath.Join(dir, "i.tar")
	testimages.Archive(t, path, imageName)
	f, err := os.Open(path)
	check(t, err)
	defer func() { _ = f.Close() }()
	_, err = c.Import(ctx(t), f, client.WithImageRefTranslator(archive.AddRefPrefix("x")))
	check(t, err)
	img, err := c.GetImage(ctx(t), imageName)
	check(t, err)
	check(t, img.Unpack(ctx(t), embed.Native))
	if got, err := embed.Snapshotter(cfg.Root); err != nil || got != embed.Native {
		t.Errorf("the next start would use %s, %v", got, err)
	}
	b := newBox(t, dir, "c1")
	cont, err := c.NewContainer(ctx(t), b.id, client.WithSnapshotter(embed.Native), client.WithNewSnapshot(b.id, img),
		client.WithRuntime(shimBinary(t, dir), &options.Options{Root: filepath.Join(dir, "runc")}),
		client.WithNewSpec(oci.WithImageConfig(img), oci.WithProcessArgs("true")))
	check(t, err)
	task, err := cont.NewTask(ctx(t), cio.NullIO)
	check(t, err)
	wait, err := task.Wait(ctx(t))
	check(t, err)
	check(t, task.Start(ctx(t)))
	if st := <-wait; st.ExitCode() != 0 {
		t.Errorf("exit code %d", st.ExitCode())
	}
	b.remove(c)
}

// spawn runs the child, waits until its containers run, and returns it with the pid of the one that stays.
func spawn(t *testing.T, dir string) (cmd *exec.Cmd, pid uint32) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^TestChildRunsContainers$")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	all := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "pid %d", &pid); err == nil {
			return cmd, pid
		}
		all += lines.Text() + "\n"
	}
	t.Fatalf("child: %s", all)
	return nil, 0
}

// TestKillNine checks that after a kill -9 running containers continue, exit codes and output of the meantime are available, and a killed shim
// is noticed.
func TestKillNine(t *testing.T) {
	dir := directory(t)
	cmd, pid := spawn(t, dir)
	check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	stays, ends, dies := &box{t: t, dir: dir, id: "stays"}, &box{t: t, dir: dir, id: "ends"}, &box{t: t, dir: dir, id: "dies"}
	for _, b := range []*box{stays, ends, dies} {
		b.paths()
	}

	check(t, os.WriteFile(filepath.Join(dir, "tmp", "go"), nil, 0o600))
	eventually(t, "exit record", func() bool { _, err := os.Stat(ends.exitFile); return err == nil })
	if r := ends.record(); r.ExitCode != 3 {
		t.Errorf("record %+v", r)
	}
	killShim(t, dir, "dies")

	began := time.Now()
	c, _ := start(t, dir)
	t.Logf("started with two containers in %s", time.Since(began))
	task := stays.load(c)
	if st, err := task.Status(ctx(t)); err != nil || st.Status != client.Running || task.Pid() != pid {
		t.Errorf("what stays: %v, %v, pid %d, want %d", st, err, task.Pid(), pid)
	}
	st, err := ends.load(c).Status(ctx(t))
	if err != nil || st.Status != client.Stopped || st.ExitStatus != 3 {
		t.Errorf("what ended: %+v, %v", st, err)
	}
	cont, err := c.LoadContainer(ctx(t), "dies")
	check(t, err)
	if _, err := cont.Task(ctx(t), nil); !errdefs.IsNotFound(err) {
		t.Errorf("task without a shim: %v", err)
	}
	if r := dies.record(); r.ExitCode != 137 {
		t.Errorf("record of a container that lost its shim: %+v", r)
	}
	out := output(t, ends.stdout)
	check(t, os.RemoveAll(filepath.Join(dir, "exits"))) // as the agent does with records it has read
	for _, b := range []*box{stays, ends, dies} {
		b.remove(c)
	}
	if got := <-out; got != "the end\n" {
		t.Errorf("output %q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "exits", "ends")); len(left) > 0 {
		t.Error("a record came back when its container was deleted")
	}
}

func withBind(source, target string) oci.SpecOpts {
	return func(ctx context.Context, cl oci.Client, ct *containersContainer, s *oci.Spec) error {
		if err := os.MkdirAll(source, 0o777); err != nil {
			return err
		}
		return oci.WithMounts([]ociMount{{Type: "bind", Source: source, Destination: target, Options: []string{"rbind", "rw"}}})(ctx, cl, ct, s)
	}
}

// killShim kills the shim of container id.
func killShim(t *testing.T, dir, id string) {
	t.Helper()
	var boot struct{ Address string }
	bundle := filepath.Join(dir, "state/io.containerd.runtime.v2.task", embed.Namespace, id)
	b, err := os.ReadFile(filepath.Join(bundle, "bootstrap.json"))
	check(t, err)
	check(t, json.Unmarshal(b, &boot))
	procs, err := filepath.Glob("/proc/[0-9]*/cwd")
	check(t, err)
	for _, p := range procs {
		cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "cmdline"))
		if cwd, _ := os.Readlink(p); cwd == bundle && strings.Contains(string(cmd), shim.BinaryName) {
			var pid int
			_, err := fmt.Sscanf(p, "/proc/%d/cwd", &pid)
			check(t, err)
			check(t, syscall.Kill(pid, syscall.SIGKILL))
			eventually(t, "shim is gone", func() bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) || zombie(pid) })
			return
		}
	}
	t.Fatalf("no shim in %s", bundle)
}

func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

func TestShimOfARunningInstanceDiesWithItsContainer(t *testing.T) {
	dir := directory(t)
	c, _ := start(t, dir)
	b := newBox(t, dir, "c1")
	pid := int(b.run(c, "exec sleep 1000").Pid())
	events, _ := c.Subscribe(ctx(t), `topic=="/tasks/exit"`)
	killShim(t, dir, "c1")
	select {
	case <-events:
	case <-time.After(testbed.Patience()):
		t.Fatal("no exit event")
	}
	if r := b.record(); r.ExitCode != 137 {
		t.Errorf("record %+v", r)
	}
	if !zombie(pid) {
		t.Errorf("process %d lives on without a shim", pid)
	}
	b.remove(c)
}
