//go:build e2e

package ctrd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner"
	"monopod/runner/ctrd/container"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
)

func load(t testing.TB, text string) *manifests.Pod {
	t.Helper()
	pods, err := decode.Pods("/x/pod.yaml", []byte(text), decode.Options{Source: "file"})
	check(t, err)
	return pods[0]
}

func (a *agent) state(t testing.TB, key manifests.Key) runner.PodState {
	t.Helper()
	st, err := a.Observe(t.Context(), key)
	check(t, err)
	return st
}

// exit waits for the end of the pod's newest container and returns how it ended.
func (a *agent) exit(t testing.TB, key manifests.Key) *runner.Container {
	t.Helper()
	var c runner.Container
	within(t, 20*time.Second, "the container has ended", func() bool {
		all := a.state(t, key).Containers
		c = all[len(all)-1]
		return c.State == runner.ContainerExited
	})
	return &c
}

// TestContainerdsRestartStopsNothing kills an external containerd and starts it again.
func TestContainerdsRestartStopsNothing(t *testing.T) {
	w := newWorld(t)
	w.startContainerd(t)
	a := w.open(t)
	defer a.end(t)
	says, err := exec.Command(filepath.Join(os.Getenv(envPrograms), "containerd"), "--version").Output()
	check(t, err)
	version := strings.Fields(string(says))[2] // after its name and its source
	if got := a.ContainerdVersion(); got != version {
		t.Errorf("it is containerd %s, and is said to be %s", version, got)
	}
	a.containerd.version.Store(new(string)) // as if that had been another one
	stays, ends := stamped(t, "stays", w.dir, false), load(t, `
apiVersion: v1
kind: Pod
metadata: {name: ends}
spec:
  hostNetwork: true
  containers: [{name: c, image: `+testImage+`, command: [sh, -c, "while [ ! -e /d/go ]; do sleep 0.1; done; exit 9"], volumeMounts: [{name: d, mountPath: /d}]}]
  volumes: [{name: d, hostPath: {path: `+w.dir+`}}]
`)
	check(t, startPod(t.Context(), a, stays))
	check(t, startPod(t.Context(), a, ends))
	pid := a.pidOf(t, stays.Key())
	told := make(chan manifests.Key, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = a.Watch(ctx, func(k manifests.Key) { told <- k }) }()

	w.stopContainerd(t)
	check(t, os.WriteFile(filepath.Join(w.dir, "go"), nil, 0o600))
	octx, ocancel := context.WithTimeout(t.Context(), 2*time.Second)
	if st, err := a.Observe(octx, stays.Key()); err == nil {
		t.Errorf("without containerd the pod is seen as %+v", st)
	}
	ocancel()
	within(t, 10*time.Second, "the shim has written the exit", func() bool { return len(trees.Names(a.dirs.Path("exits"))) == 1 })
	for len(told) > 0 {
		<-told
	}
	w.startContainerd(t)
	for k := range told {
		if k == (manifests.Key{}) {
			break
		}
	}
	if got := a.ContainerdVersion(); got != version {
		t.Errorf("after its restart it is containerd %s, and is said to be %s", version, got)
	}
	if now := a.pidOf(t, stays.Key()); now != pid || !alive(pid) {
		t.Errorf("pid was %d, is %d", pid, now)
	}
	if x := a.exit(t, ends.Key()).Exit; x.ExitCode != 9 || x.Reason != runner.ReasonError {
		t.Errorf("exit is %+v", x)
	}
	check(t, removePod(t.Context(), a, stays.Key()))
	check(t, removePod(t.Context(), a, ends.Key()))
}

// TestAContainerdThatEndsLeavesAPodOneSandbox has a sandbox that was created without a reply to the agent, and one that was
// removed while containerd was down.
func TestAContainerdThatEndsLeavesAPodOneSandbox(t *testing.T) {
	w := newWorld(t)
	w.startContainerd(t)
	a := w.open(t)
	defer a.end(t)
	ctx := a.ns(t.Context())
	pod := stamped(t, "p", w.dir, false)
	key := pod.Key()
	made := func() *record.Sandbox {
		t.Helper()
		rec, err := a.sandboxes.NewSandbox(ctx, key, pod, runner.Action{UID: "uid"})
		check(t, err)
		check(t, a.records.StoreSandbox(ctx, rec))
		check(t, a.sandboxes.PrepareSandbox(ctx, rec))
		return rec
	}
	made()
	check(t, startPod(t.Context(), a, pod))
	runs, pid := a.index.Sandbox(key).ID, a.pidOf(t, key)
	givenUp := made()
	told := make(chan manifests.Key, 100)
	go func() { _ = a.Watch(ctx, func(k manifests.Key) { told <- k }) }()
	w.stopContainerd(t)
	a.sandboxes.DropSandbox(ctx, givenUp)
	for len(told) > 0 {
		<-told
	}
	w.startContainerd(t)
	for k := range told {
		if k == (manifests.Key{}) {
			break
		}
	}
	if now := a.index.Sandbox(key); now == nil || now.ID != runs {
		t.Errorf("its sandbox was %s, is %v", runs, now)
	}
	a.idle(t)
	all, err := a.client.SandboxStore().List(ctx)
	check(t, err)
	if left := trees.Names(a.dirs.Path("ns")); len(all) != 1 || all[0].ID != runs || len(left) != 1 {
		t.Errorf("containerd has %d sandboxes, and namespaces are pinned for %q, want those of %s", len(all), left, runs)
	}
	if now := a.pidOf(t, key); now != pid || !alive(pid) {
		t.Errorf("pid was %d, is %d", pid, now)
	}
	check(t, removePod(t.Context(), a, key))
}

// TestWhatIsNotOursIsLeftAlone has a container and a snapshot of another client in the same namespace.
func TestWhatIsNotOursIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	ctx := a.ns(context.Background())
	img, err := a.images.Get(ctx, testImage)
	check(t, err)
	s, err := typeurl.MarshalAny(&specs.Spec{Version: "1.0.2"})
	check(t, err)
	for id, owner := range map[string]string{"foreign": "", "other": "/var/lib/other"} {
		labels := map[string]string{record.LabelPodNamespace: "default", record.LabelPodName: "web", record.LabelContainerName: "c"}
		if owner != "" {
			labels[record.LabelOwner] = owner
		}
		_, err = a.client.ContainerService().Create(ctx, containers.Container{
			ID: id, Labels: labels, Spec: s, Runtime: containers.RuntimeInfo{Name: "io.containerd.runc.v2"}, SnapshotKey: id, Snapshotter: a.cfg.Snapshotter,
		})
		check(t, err)
		labels[record.LabelGCRoot] = "x"
		_, err = a.client.SnapshotService(a.cfg.Snapshotter).Prepare(ctx, id, img.ChainID, snapshots.WithLabels(labels))
		check(t, err)
	}
	dir := filepath.Join(w.dir, "pods", "default_web_uid", "c")
	check(t, os.MkdirAll(dir, 0o755))
	a.stop(t)
	a = w.open(t)
	defer a.end(t)
	a.idle(t)
	for _, id := range []string{"foreign", "other"} {
		if _, err := a.client.ContainerService().Get(ctx, id); err != nil {
			t.Error(err)
		}
		if _, err := a.client.SnapshotService(a.cfg.Snapshotter).Stat(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	if st := a.state(t, manifests.Key{Namespace: "default", Name: "web"}); len(st.Containers) != 0 {
		t.Errorf("somebody else's containers are taken for ours: %+v", st.Containers)
	}
}

// TestTerminationMessages reads them from the file, and from the log with FallbackToLogsOnError.
func TestTerminationMessages(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	for name, c := range map[string]struct{ script, policy, want string }{
		"file":             {"echo out; echo told > /dev/termination-log; exit 1", "File", "told\n"},
		"no-file":          {"echo out; exit 1", "File", ""},
		"log":              {"for i in $(seq 200); do echo line $i; done; exit 1", "FallbackToLogsOnError", "line 199\nline 200\n"},
		"log-of-success":   {"echo out; exit 0", "FallbackToLogsOnError", ""},
		"file-before-log":  {"echo out; echo told > /dev/termination-log; exit 1", "FallbackToLogsOnError", "told\n"},
		"end-of-long-file": {"head -c 5000 /dev/zero | tr '\\\\0' x > /dev/termination-log; echo end >> /dev/termination-log; exit 1", "File", "xend\n"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: msg-%s}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers: [{name: c, image: %s, terminationMessagePolicy: %s, command: [sh, -c, "%s"]}]
`, name, testImage, c.policy, c.script))
			check(t, startPod(t.Context(), a, pod))
			ended := a.exit(t, pod.Key())
			check(t, a.Apply(t.Context(), pod.Key(), nil, runner.Action{Kind: runner.FinishContainer, Container: "c", ContainerID: ended.ID, Exit: ended.Exit}))
			got := a.exit(t, pod.Key())
			if !got.Recorded || !strings.HasSuffix(got.Exit.Message, c.want) || c.want == "" && got.Exit.Message != "" {
				t.Errorf("recorded %t, message %q", got.Recorded, got.Exit.Message)
			}
			if len(got.Exit.Message) > container.MaxMessage {
				t.Errorf("message of %d bytes", len(got.Exit.Message))
			}
			check(t, removePod(t.Context(), a, pod.Key()))
		})
	}
}

// TestAHostPathIsNeverEmptied checks that removing a pod keeps what it mounts from the host.
func TestAHostPathIsNeverEmptied(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	data := filepath.Join(w.dir, "data")
	check(t, os.Mkdir(data, 0o755))
	check(t, os.WriteFile(filepath.Join(data, "precious"), nil, 0o600))
	pod := load(t, `
apiVersion: v1
kind: Pod
metadata: {name: hp}
spec:
  containers:
  - name: c
    image: `+testImage+`
    command: [sleep, "1000"]
    volumeMounts: [{name: e, mountPath: /e}, {name: d, mountPath: /e/inner}, {name: m, mountPath: /m}]
  volumes: [{name: d, hostPath: {path: `+data+`}}, {name: e, emptyDir: {}}, {name: m, emptyDir: {medium: Memory}}]
`)
	check(t, startPod(t.Context(), a, pod))
	uid := a.state(t, pod.Key()).Sandbox.UID
	// A user bind-mounts the directory into the pod's volume, on the host.
	inner := filepath.Join(a.dirs.PodDir(uid), "volumes", "kubernetes.io~empty-dir", "e", "inner")
	check(t, unix.Mount(data, inner, "", unix.MS_BIND, ""))
	check(t, removePod(t.Context(), a, pod.Key()))
	a.idle(t)
	if _, err := os.Stat(filepath.Join(data, "precious")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(a.dirs.PodDir(uid)); err == nil {
		t.Error("the pod's directory is still there")
	}
}

// TestObservingIsCheap makes many pods and measures.
func TestObservingIsCheap(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer func() { a.end(t) }()
	const n = 40
	var pods []*manifests.Pod
	for i := range n {
		p := stamped(t, fmt.Sprintf("many%d", i), w.dir, true)
		check(t, startPod(t.Context(), a, p))
		pods = append(pods, p)
	}
	began := time.Now()
	for _, p := range pods {
		a.pidOf(t, p.Key())
	}
	per := time.Since(began) / n
	t.Logf("observe: %v per pod with %d pods", per, n)
	a.stop(t)
	began = time.Now()
	a = w.open(t)
	for _, p := range pods {
		a.pidOf(t, p.Key())
	}
	t.Logf("open and observe %d pods: %v", n, time.Since(began))
	if per > 100*time.Millisecond {
		t.Errorf("observe takes %v", per)
	}
	for _, p := range pods {
		check(t, removePod(t.Context(), a, p.Key()))
	}
}
