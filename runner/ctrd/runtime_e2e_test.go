//go:build e2e

package ctrd_test

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

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/container"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
)

// TestContainerdsRestartStopsNothing kills an external containerd and starts it again.
func TestContainerdsRestartStopsNothing(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	ctrdtest.StartContainerd(t, w)
	a := w.Open(t)
	defer a.End(t)
	says, err := exec.Command(filepath.Join(os.Getenv(ctrdtest.EnvPrograms), "tools", "containerd"), "--version").Output()
	ctrdtest.Check(t, err)
	version := strings.Fields(string(says))[2] // after its name and its source
	if got := a.ContainerdVersion(); got != version {
		t.Errorf("it is containerd %s, and is said to be %s", version, got)
	}
	a.Version.Store(new(string)) // as if that had been another one
	stays, ends := ctrdtest.Stamped(t, "stays", w.Dir, false), ctrdtest.Load(t, `
apiVersion: v1
kind: Pod
metadata: {name: ends}
spec:
  hostNetwork: true
  containers: [{name: c, image: `+ctrdtest.TestImage+`, command: [sh, -c, "while [ ! -e /d/go ]; do sleep 0.1; done; exit 9"], volumeMounts: [{name: d, mountPath: /d}]}]
  volumes: [{name: d, hostPath: {path: `+w.Dir+`}}]
`)
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, stays))
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, ends))
	pid := a.PID(t, stays.Key())
	told := make(chan manifests.Key, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = a.Watch(ctx, func(k manifests.Key) { told <- k }) }()

	ctrdtest.StopContainerd(t, w)
	ctrdtest.Check(t, os.WriteFile(filepath.Join(w.Dir, "go"), nil, 0o600))
	octx, ocancel := context.WithTimeout(t.Context(), 2*time.Second)
	if st, err := a.Observe(octx, stays.Key()); err == nil {
		t.Errorf("without containerd the pod is seen as %+v", st)
	}
	ocancel()
	ctrdtest.Within(t, 10*time.Second, "the shim has written the exit", func() bool { return len(trees.Names(a.Dirs.Path("exits"))) == 1 })
	for len(told) > 0 {
		<-told
	}
	ctrdtest.StartContainerd(t, w)
	for k := range told {
		if k == (manifests.Key{}) {
			break
		}
	}
	if got := a.ContainerdVersion(); got != version {
		t.Errorf("after its restart it is containerd %s, and is said to be %s", version, got)
	}
	if now := a.PID(t, stays.Key()); now != pid || !ctrdtest.Alive(pid) {
		t.Errorf("pid was %d, is %d", pid, now)
	}
	if x := a.Exit(t, ends.Key()).Exit; x.ExitCode != 9 || x.Reason != runner.ReasonError {
		t.Errorf("exit is %+v", x)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, stays.Key()))
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, ends.Key()))
}

// TestAContainerdThatEndsLeavesAPodOneSandbox has a sandbox that was created without a reply to the agent, and one that was
// removed while containerd was down.
func TestAContainerdThatEndsLeavesAPodOneSandbox(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	ctrdtest.StartContainerd(t, w)
	a := w.Open(t)
	defer a.End(t)
	ctx := a.NS(t.Context())
	pod := ctrdtest.Stamped(t, "p", w.Dir, false)
	key := pod.Key()
	made := func() *record.Sandbox {
		t.Helper()
		rec, err := a.Sandboxes.NewSandbox(ctx, key, pod, runner.Action{UID: "uid"})
		ctrdtest.Check(t, err)
		ctrdtest.Check(t, a.Records.StoreSandbox(ctx, rec))
		ctrdtest.Check(t, a.Sandboxes.PrepareSandbox(ctx, rec))
		return rec
	}
	made()
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
	runs, pid := a.Index.Sandbox(key).ID, a.PID(t, key)
	givenUp := made()
	told := make(chan manifests.Key, 100)
	go func() { _ = a.Watch(ctx, func(k manifests.Key) { told <- k }) }()
	ctrdtest.StopContainerd(t, w)
	a.Sandboxes.DropSandbox(ctx, givenUp)
	for len(told) > 0 {
		<-told
	}
	ctrdtest.StartContainerd(t, w)
	for k := range told {
		if k == (manifests.Key{}) {
			break
		}
	}
	if now := a.Index.Sandbox(key); now == nil || now.ID != runs {
		t.Errorf("its sandbox was %s, is %v", runs, now)
	}
	a.Idle(t)
	all, err := a.Client.SandboxStore().List(ctx)
	ctrdtest.Check(t, err)
	if left := trees.Names(a.Dirs.Path("ns")); len(all) != 1 || all[0].ID != runs || len(left) != 1 {
		t.Errorf("containerd has %d sandboxes, and namespaces are pinned for %q, want those of %s", len(all), left, runs)
	}
	if now := a.PID(t, key); now != pid || !ctrdtest.Alive(pid) {
		t.Errorf("pid was %d, is %d", pid, now)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, key))
}

// TestWhatIsNotOursIsLeftAlone has a container and a snapshot of another client in the same namespace.
func TestWhatIsNotOursIsLeftAlone(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	ctx := a.NS(context.Background())
	img, err := a.ImageStore.Get(ctx, ctrdtest.TestImage)
	ctrdtest.Check(t, err)
	s, err := typeurl.MarshalAny(&specs.Spec{Version: "1.0.2"})
	ctrdtest.Check(t, err)
	for id, owner := range map[string]string{"foreign": "", "other": "/var/lib/other"} {
		labels := map[string]string{record.LabelPodNamespace: "default", record.LabelPodName: "web", record.LabelContainerName: "c"}
		if owner != "" {
			labels[record.LabelOwner] = owner
		}
		_, err = a.Client.ContainerService().Create(ctx, containers.Container{
			ID: id, Labels: labels, Spec: s, Runtime: containers.RuntimeInfo{Name: "io.containerd.runc.v2"}, SnapshotKey: id, Snapshotter: a.Config.Snapshotter,
		})
		ctrdtest.Check(t, err)
		labels[record.LabelGCRoot] = "x"
		_, err = a.Client.SnapshotService(a.Config.Snapshotter).Prepare(ctx, id, img.ChainID, snapshots.WithLabels(labels))
		ctrdtest.Check(t, err)
	}
	dir := filepath.Join(w.Dir, "pods", "default_web_uid", "c")
	ctrdtest.Check(t, os.MkdirAll(dir, 0o755))
	a.Stop(t)
	a = w.Open(t)
	defer a.End(t)
	a.Idle(t)
	for _, id := range []string{"foreign", "other"} {
		if _, err := a.Client.ContainerService().Get(ctx, id); err != nil {
			t.Error(err)
		}
		if _, err := a.Client.SnapshotService(a.Config.Snapshotter).Stat(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	if st := a.State(t, manifests.Key{Namespace: "default", Name: "web"}); len(st.Containers) != 0 {
		t.Errorf("somebody else's containers are taken for ours: %+v", st.Containers)
	}
}

// TestTerminationMessages reads them from the file, and from the log with FallbackToLogsOnError.
func TestTerminationMessages(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	for name, c := range map[string]struct{ script, policy, want string }{
		"file":             {"echo out; echo told > /dev/termination-log; exit 1", "File", "told\n"},
		"no-file":          {"echo out; exit 1", "File", ""},
		"log":              {"for i in $(seq 200); do echo line $i; done; exit 1", "FallbackToLogsOnError", "line 199\nline 200\n"},
		"log-of-success":   {"echo out; exit 0", "FallbackToLogsOnError", ""},
		"file-before-log":  {"echo out; echo told > /dev/termination-log; exit 1", "FallbackToLogsOnError", "told\n"},
		"end-of-long-file": {"head -c 5000 /dev/zero | tr '\\\\0' x > /dev/termination-log; echo end >> /dev/termination-log; exit 1", "File", "xend\n"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: msg-%s}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers: [{name: c, image: %s, terminationMessagePolicy: %s, command: [sh, -c, "%s"]}]
`, name, ctrdtest.TestImage, c.policy, c.script))
			ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
			ended := a.Exit(t, pod.Key())
			ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), nil, runner.Action{Kind: runner.FinishContainer, Container: "c", ContainerID: ended.ID, Exit: ended.Exit}))
			got := a.Exit(t, pod.Key())
			if !got.Recorded || !strings.HasSuffix(got.Exit.Message, c.want) || c.want == "" && got.Exit.Message != "" {
				t.Errorf("recorded %t, message %q", got.Recorded, got.Exit.Message)
			}
			if len(got.Exit.Message) > container.MaxMessage {
				t.Errorf("message of %d bytes", len(got.Exit.Message))
			}
			ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
		})
	}
}

// TestAHostPathIsNeverEmptied checks that removing a pod keeps what it mounts from the host.
func TestAHostPathIsNeverEmptied(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	data := filepath.Join(w.Dir, "data")
	ctrdtest.Check(t, os.Mkdir(data, 0o755))
	ctrdtest.Check(t, os.WriteFile(filepath.Join(data, "precious"), nil, 0o600))
	pod := ctrdtest.Load(t, `
apiVersion: v1
kind: Pod
metadata: {name: hp}
spec:
  containers:
  - name: c
    image: `+ctrdtest.TestImage+`
    command: [sleep, "1000"]
    volumeMounts: [{name: e, mountPath: /e}, {name: d, mountPath: /e/inner}, {name: m, mountPath: /m}]
  volumes: [{name: d, hostPath: {path: `+data+`}}, {name: e, emptyDir: {}}, {name: m, emptyDir: {medium: Memory}}]
`)
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
	uid := a.State(t, pod.Key()).Sandbox.UID
	// A user bind-mounts the directory into the pod's volume, on the host.
	inner := filepath.Join(a.Dirs.PodDir(uid), "volumes", "kubernetes.io~empty-dir", "e", "inner")
	ctrdtest.Check(t, unix.Mount(data, inner, "", unix.MS_BIND, ""))
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	a.Idle(t)
	if _, err := os.Stat(filepath.Join(data, "precious")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(a.Dirs.PodDir(uid)); err == nil {
		t.Error("the pod's directory is still there")
	}
}

// TestObservingIsCheap makes many pods and measures.
func TestObservingIsCheap(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer func() { a.End(t) }()
	const n = 40
	var pods []*manifests.Pod
	for i := range n {
		p := ctrdtest.Stamped(t, fmt.Sprintf("many%d", i), w.Dir, true)
		ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, p))
		pods = append(pods, p)
	}
	began := time.Now()
	for _, p := range pods {
		a.PID(t, p.Key())
	}
	per := time.Since(began) / n
	t.Logf("observe: %v per pod with %d pods", per, n)
	a.Stop(t)
	began = time.Now()
	a = w.Open(t)
	for _, p := range pods {
		a.PID(t, p.Key())
	}
	t.Logf("open and observe %d pods: %v", n, time.Since(began))
	if per > 100*time.Millisecond {
		t.Errorf("observe takes %v", per)
	}
	for _, p := range pods {
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, p.Key()))
	}
}
