//go:build e2e

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"monopod/e2e/ctrdtest"
	"monopod/e2e/testimages"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/trees"
)

// volumePod is a pod with one container c that runs a script; mounts and volumes are YAML lists. It is privileged if it
// passes mounts on.
func volumePod(t testing.TB, name, script, mounts, volumes string) *manifests.Pod {
	t.Helper()
	return ctrdtest.Load(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  restartPolicy: Never
  containers:
  - name: c
    image: %s
    command: [sh, -c, %q]
    securityContext: {privileged: %t}
    env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts: %s
  volumes: %s
`, name, ctrdtest.TestImage, "exec 2>&1; "+script, strings.Contains(mounts, "Propagation"), mounts, volumes))
}

// refused says with which error the pod's container cannot be created, and checks that nothing of it is left.
func refused(t testing.TB, a *ctrdtest.Agent, pod *manifests.Pod, want string) {
	t.Helper()
	err := ctrdtest.StartPod(t.Context(), a, pod)
	var step *runner.StepError
	if !errors.As(err, &step) || step.Reason != runner.ReasonCreateContainerConfigError || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %s", err, want)
	}
	if left := trees.Names(a.Dirs.Path("subpaths")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(context.WithoutCancel(t.Context()), a, pod.Key()))
	a.Idle(t)
}

func TestSubPathsAreMounted(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	data := filepath.Join(w.Dir, "data")
	ctrdtest.Check(t, os.MkdirAll(filepath.Join(data, "dir"), 0o755))
	ctrdtest.Check(t, os.Chmod(data, 0o775))
	ctrdtest.Check(t, os.WriteFile(filepath.Join(data, "dir", "file"), []byte("one file\n"), 0o644))
	ctrdtest.Check(t, os.Symlink("dir", filepath.Join(data, "link")))
	got := a.Output(t, volumePod(t, "sub", "cat /file; cat /link/file; echo x > /expr/made; stat -c %a /expr; touch /ro/x; ls /dir /expr",
		`[{name: d, mountPath: /dir, subPath: dir}, {name: d, mountPath: /file, subPath: dir/file}, {name: d, mountPath: /link, subPath: link},
          {name: d, mountPath: /expr, subPathExpr: logs/$(NAME)}, {name: d, mountPath: /ro, subPath: dir, readOnly: true}]`,
		`[{name: d, hostPath: {path: `+data+`}}]`))
	want := "one file\none file\n775\ntouch: /ro/x: Read-only file system\n/dir:\nfile\n\n/expr:\nmade\n"
	if got != want {
		t.Errorf("the container sees\n%s\nwant\n%s", got, want)
	}
	if _, err := os.Stat(filepath.Join(data, "logs", "sub", "made")); err != nil {
		t.Error(err)
	}
	if left := trees.Names(a.Dirs.Path("subpaths")); len(left) > 0 {
		t.Errorf("bind mounts are left: %v", left)
	}
}

// TestSubPathsDoNotLeadOut has a volume whose owner wants to see the machine (CVE-2017-1002101), or have something made
// there: what an earlier pod has put into a volume is never followed (CVE-2025-9566).
func TestSubPathsDoNotLeadOut(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	data, outside := filepath.Join(w.Dir, "data"), filepath.Join(w.Dir, "outside")
	ctrdtest.Check(t, os.Mkdir(data, 0o777))
	ctrdtest.Check(t, os.Mkdir(outside, 0o755))
	volumes := `[{name: d, hostPath: {path: ` + data + `}}]`
	a.Output(t, volumePod(t, "plants", "ln -s "+outside+" /d/abs; ln -s ../outside /d/rel; ln -s / /d/root; ln -s /proc/self/root /d/proc",
		"[{name: d, mountPath: /d}]", volumes))
	for i, sub := range []string{"abs", "abs/made", "rel", "rel/made", "root", "root/etc", "proc", "proc/etc"} {
		pod := volumePod(t, fmt.Sprintf("out%d", i), "ls /x", "[{name: d, mountPath: /x, subPath: "+sub+"}]", volumes)
		refused(t, a, pod, `failed to prepare subPath for volumeMount "d" of container "c"`)
	}
	if made := trees.Names(outside); len(made) > 0 {
		t.Errorf("made outside: %v", made)
	}
	refused(t, a, volumePod(t, "empty", "true", "[{name: d, mountPath: /x, subPathExpr: $(NONE)}]", volumes), `missing value for "NONE"`)
}

// TestASwapWhileMountingDoesNotLeadOut is CVE-2021-25741.
func TestASwapWhileMountingDoesNotLeadOut(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	data, outside := filepath.Join(w.Dir, "data"), filepath.Join(w.Dir, "outside")
	ctrdtest.Check(t, os.MkdirAll(filepath.Join(data, "good"), 0o777))
	ctrdtest.Check(t, os.MkdirAll(outside, 0o755))
	ctrdtest.Check(t, os.WriteFile(filepath.Join(outside, "secret"), nil, 0o644))
	ctrdtest.Check(t, os.Symlink(outside, filepath.Join(data, "evil")))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(data, "evil"), unix.AT_FDCWD, filepath.Join(data, "good"), unix.RENAME_EXCHANGE)
		}
	}()
	defer func() { cancel(); <-done }()
	ran := 0
	for i := range 12 {
		pod := volumePod(t, fmt.Sprintf("swap%d", i), "ls /x; sleep 1000", "[{name: d, mountPath: /x, subPath: good}]", `[{name: d, hostPath: {path: `+data+`}}]`)
		if err := ctrdtest.StartPod(t.Context(), a, pod); err == nil {
			ran++
			pid := a.PID(t, pod.Key())
			if seen := trees.Names(fmt.Sprintf("/proc/%d/root/x", pid)); len(seen) > 0 {
				t.Errorf("the container sees %v", seen)
			}
		}
		ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	}
	if ran == 0 {
		t.Error("no container came to run")
	}
	a.Idle(t)
}

func TestMountPropagation(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	data := filepath.Join(w.Dir, "data")
	ctrdtest.Check(t, os.Mkdir(data, 0o755))
	volumes := `[{name: d, hostPath: {path: ` + data + `}}]`
	for mode, want := range map[string]string{"Bidirectional": "but it is not a shared mount", "HostToContainer": "but it is not a shared or slave mount"} {
		refused(t, a, volumePod(t, "refused-"+strings.ToLower(mode), "true", "[{name: d, mountPath: /d, mountPropagation: "+mode+"}]", volumes), want)
	}
	ctrdtest.Check(t, unix.Mount(data, data, "", unix.MS_BIND, ""))
	defer func() { ctrdtest.Check(t, unix.Unmount(data, unix.MNT_DETACH)) }()
	ctrdtest.Check(t, unix.Mount("", data, "", unix.MS_SHARED, ""))
	for _, d := range []string{"host", "both", "sub/host"} {
		ctrdtest.Check(t, os.MkdirAll(filepath.Join(data, d), 0o755))
	}
	pod := volumePod(t, "prop", "mount -t tmpfs x /both/both; mkdir /own/m; mount -t tmpfs x /own/m; mkdir /both/ready; sleep 1000",
		`[{name: d, mountPath: /none}, {name: d, mountPath: /down, mountPropagation: HostToContainer},
          {name: d, mountPath: /both, mountPropagation: Bidirectional}, {name: e, mountPath: /own, mountPropagation: Bidirectional},
          {name: d, mountPath: /sub, subPath: sub, mountPropagation: HostToContainer}]`,
		`[{name: d, hostPath: {path: `+data+`}}, {name: e, emptyDir: {}}]`)
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
	root := fmt.Sprintf("/proc/%d/root", a.PID(t, pod.Key()))
	ctrdtest.Within(t, 10*time.Second, "the container has mounted", func() bool { _, err := os.Stat(filepath.Join(data, "ready")); return err == nil })
	for _, at := range []string{"host", "sub/host"} {
		ctrdtest.Check(t, unix.Mount("tmpfs", filepath.Join(data, at), "tmpfs", 0, ""))
		ctrdtest.Check(t, os.WriteFile(filepath.Join(data, at, "mark"), nil, 0o600))
	}
	for path, want := range map[string]bool{"none/host/mark": false, "down/host/mark": true, "both/host/mark": true, "sub/host/mark": true} {
		if _, err := os.Stat(filepath.Join(root, path)); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	own := filepath.Join(a.Dirs.PodDir(a.State(t, pod.Key()).Sandbox.UID), "volumes", "kubernetes.io~empty-dir", "e", "m")
	for _, path := range []string{filepath.Join(data, "both"), own} {
		if !trees.IsMountPoint(path) {
			t.Errorf("what the container mounted at %s is not seen", path)
		}
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	a.Idle(t)
	for _, at := range []string{"host/mark", "sub/host/mark"} {
		if _, err := os.Stat(filepath.Join(data, at)); err != nil {
			t.Errorf("the pod took a mount of the host with it: %v", err)
		}
	}
}

func TestReadOnlyBelowAMount(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer a.End(t)
	data := filepath.Join(w.Dir, "data")
	ctrdtest.Check(t, os.MkdirAll(filepath.Join(data, "inner"), 0o755))
	ctrdtest.Check(t, unix.Mount("tmpfs", filepath.Join(data, "inner"), "tmpfs", 0, ""))
	defer func() { ctrdtest.Check(t, unix.Unmount(filepath.Join(data, "inner"), unix.MNT_DETACH)) }()
	got := a.Output(t, volumePod(t, "rro", "for d in plain all maybe; do touch /$d/x; touch /$d/inner/x; done; echo; cp /bin/busybox /opt/x; /opt/x true || grep ' /opt ' /proc/mounts",
		`[{name: d, mountPath: /plain, readOnly: true}, {name: d, mountPath: /all, readOnly: true, recursiveReadOnly: Enabled},
          {name: d, mountPath: /maybe, readOnly: true, recursiveReadOnly: IfPossible}, {name: e, mountPath: /opt, bindMountOptions: [noexec, nodev]}]`,
		`[{name: d, hostPath: {path: `+data+`}}, {name: e, emptyDir: {}}]`))
	for _, want := range []string{
		"touch: /plain/x: Read-only", "touch: /all/x: Read-only", "touch: /all/inner/x: Read-only", "touch: /maybe/inner/x: Read-only",
		"sh: /opt/x: Permission denied", "nodev,noexec",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "/plain/inner/x: Read-only") {
		t.Errorf("readOnly alone is recursive:\n%s", got)
	}
}

// TestVolumesOfAnImage: a container has directories of its own for them, with what the image has there.
func TestVolumesOfAnImage(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	img := testimages.Busybox(t, func(c *v1.Config) {
		c.Volumes = map[string]struct{}{"/home": {}, "/data/new": {}, "/etc": {}}
	})
	testimages.ArchiveOf(t, filepath.Join(w.Dir, "images", "volumes.tar"), img, "example.com/volumes:1")
	a := w.Open(t)
	defer a.End(t)
	pod := volumePod(t, "image", "touch /home/app/x /data/new/x && touch /etc/passwd; touch /opt/x; sleep 1000",
		"[{name: e, mountPath: /etc}]", "[{name: e, emptyDir: {}}]")
	c := &pod.Object.Spec.Containers[0]
	c.Image = "example.com/volumes:1"
	c.SecurityContext.ReadOnlyRootFilesystem = new(true)
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
	uid := a.State(t, pod.Key()).Sandbox.UID
	root := fmt.Sprintf("/proc/%d/root", a.PID(t, pod.Key()))
	for _, file := range []string{"home/app/x", "data/new/x", "etc/passwd"} { // etc is the pod's own volume
		ctrdtest.Within(t, 10*time.Second, file+" is written", func() bool { _, err := os.Stat(filepath.Join(root, file)); return err == nil })
	}
	if fi, err := os.Stat(filepath.Join(root, "home", "app")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", fi, err)
	}
	if _, err := os.Stat(filepath.Join(root, "opt", "x")); err == nil {
		t.Error("the root file system is not read-only")
	}
	dir := a.Dirs.ImageVolumeDir(uid, "")
	first := trees.Names(dir)
	if len(first) != 1 || len(trees.Names(filepath.Join(dir, first[0]))) != 2 {
		t.Fatalf("volumes are %v", first)
	}
	// The next instance has new ones, the old go with theirs.
	ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.CreateContainer, Container: "c"}))
	ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), nil, runner.Action{Kind: runner.RemoveContainer, Container: "c", ContainerID: first[0]}))
	if now := trees.Names(dir); len(now) != 1 || now[0] == first[0] {
		t.Errorf("volumes are %v, were %v", now, first)
	}
	ctrdtest.Check(t, os.Mkdir(filepath.Join(dir, "left-by-a-crash"), 0o755))
	a.Stop(t)
	*a = *w.Open(t)
	if now := trees.Names(dir); slices.Contains(now, "left-by-a-crash") {
		t.Errorf("volumes are %v", now)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	a.Idle(t)
}

func TestAnImageIsAVolume(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	img := testimages.FromFiles(t, []testimages.File{
		{Path: "dir", Mode: 0o755},
		{Path: "dir/file", Content: []byte("content\n"), Mode: 0o644},
		{Path: "prog", Content: []byte("#!/bin/sh\necho executed\n"), Mode: 0o755},
		{Path: "out", Link: "../../../../../../../..", Mode: 0o777},
	}, nil)
	testimages.ArchiveOf(t, filepath.Join(w.Dir, "images", "data.tar"), img, "example.com/data:1")
	a := w.Open(t)
	defer a.End(t)
	volumes := "[{name: i, image: {reference: example.com/data:1, pullPolicy: IfNotPresent}}]"
	pod := volumePod(t, "iv", "cat /i/dir/file /d/file; touch /i/x; /i/prog; sleep 1000",
		"[{name: i, mountPath: /i}, {name: i, mountPath: /d, subPath: dir}]", volumes)
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
	want := []string{"content\ncontent\n", "touch: /i/x: Read-only file system", "sh: /i/prog: Permission denied"}
	ctrdtest.Within(t, 10*time.Second, "the container has tried everything", func() bool { return strings.Contains(a.LogOf(t, pod.Key()), want[2]) })
	for _, text := range want {
		if got := a.LogOf(t, pod.Key()); !strings.Contains(got, text) {
			t.Errorf("no %q in %s", text, got)
		}
	}
	a.Stop(t)
	*a = *w.Open(t)
	sandbox := a.State(t, pod.Key()).Sandbox.ID
	if mounted := trees.Names(a.Dirs.Path("image-volumes", sandbox)); len(mounted) != 1 || !trees.IsMountPoint(a.Dirs.Path("image-volumes", sandbox, mounted[0])) {
		t.Errorf("mounted after a restart: %v", mounted)
	}
	// Another instance shares the mount.
	ctrdtest.Check(t, a.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.CreateContainer, Container: "c"}))
	// A removal that is cut off after the mounts is done again. No namespace can have this name.
	if err := a.Removal.ImageVolumes.DropImageVolumes(namespaces.WithNamespace(t.Context(), "Not/Valid"), sandbox); err == nil {
		t.Error("snapshots are removed in no namespace")
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, pod.Key()))
	a.Idle(t)
	if left := trees.Names(a.Dirs.Path("image-volumes")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	ctrdtest.Check(t, a.Client.SnapshotService(a.Config.Snapshotter).Walk(a.NS(t.Context()), func(_ context.Context, i snapshots.Info) error {
		if i.Labels[record.LabelSandbox] != "" {
			t.Errorf("snapshot %s is left", i.Name)
		}
		return nil
	}))
	for _, sub := range []string{"none", "out/etc"} {
		refused(t, a, volumePod(t, "iv-sub", "true", "[{name: i, mountPath: /i, subPath: "+sub+"}]", volumes), "failed to prepare subPath")
	}
	missing := volumePod(t, "iv-none", "true", "[{name: i, mountPath: /i}]", "[{name: i, image: {reference: example.com/none:1, pullPolicy: Never}}]")
	err := ctrdtest.StartPod(t.Context(), a, missing)
	var step *runner.StepError
	if !errors.As(err, &step) || step.Reason != runner.ReasonErrImageNeverPull {
		t.Errorf("error is %v", err)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, missing.Key()))
	a.Idle(t)
}

// TestAPodKeepsItsDiskOverAReboot revives a sandbox, cut off at first.
func TestAPodKeepsItsDiskOverAReboot(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	pod := ctrdtest.Load(t, `
apiVersion: v1
kind: Pod
metadata: {name: phoenix}
spec:
  containers:
  - name: c
    image: `+ctrdtest.TestImage+`
    command: [sh, -c, "echo run; echo x >> /disk/runs; echo x >> /mem/runs; wc -l < /disk/runs; wc -l < /mem/runs; exec sleep 1000"]
    resources: {requests: {cpu: 250m}, limits: {cpu: 500m, memory: 64Mi}}
    volumeMounts: [{name: disk, mountPath: /disk}, {name: mem, mountPath: /mem}]
  volumes: [{name: disk, emptyDir: {}}, {name: mem, emptyDir: {medium: Memory}}]
`)
	key := pod.Key()
	limited := func() {
		t.Helper()
		cg := filepath.Dir(a.ContainerCgroup(t, key))
		if got, want := a.Limits(t, cg), "quota 50000 memory 67108864"; got != want {
			t.Errorf("the pod has %s, want %s", got, want)
		}
		for _, of := range []string{cg, filepath.Dir(cg)} {
			if got := a.Weight(t, of); got != a.WeightOf(256) {
				t.Errorf("%s weighs %s, want %s", of, got, a.WeightOf(256))
			}
		}
	}
	ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
	ctrdtest.Within(t, 10*time.Second, "it has written", func() bool { return a.LogOf(t, key) == "run\n1\n1\n" })
	limited()
	before := a.State(t, key)
	w.PowerCut(t, a, before.Containers[0].PID)

	a = w.Open(t)
	st := a.State(t, key)
	if st.Sandbox == nil || st.Sandbox.Alive || len(st.Containers) != 1 || st.Containers[0].State != runner.ContainerExited {
		t.Fatalf("after the power cut: %+v", st)
	}
	// Cut off after the record was written: the sandbox is still not taken for alive.
	_, err := a.Records.UpdateSandbox(a.NS(t.Context()), st.Sandbox.ID, func(s *record.Sandbox) { s.Network = record.NetworkResult{} }, record.ExtNetwork)
	ctrdtest.Check(t, err)
	a.Stop(t)
	a = w.Open(t)
	if a.State(t, key).Sandbox.Alive {
		t.Fatal("half a sandbox is alive")
	}
	for _, act := range []runner.Action{
		{Kind: runner.ReviveSandbox},
		{Kind: runner.EnsureImage, Container: "c"},
		{Kind: runner.CreateContainer, Container: "c", RestartCount: 1},
		{Kind: runner.StartContainer, Container: "c"},
		{Kind: runner.RemoveContainer, Container: "c", ContainerID: before.Containers[0].ID},
	} {
		if err := a.Apply(t.Context(), key, pod, act); err != nil {
			t.Fatalf("%s: %v", act, err)
		}
	}
	ctrdtest.Within(t, 10*time.Second, "it has written again", func() bool { return strings.Count(a.LogOf(t, key), "\n") == 3 })
	if got := a.LogOf(t, key); got != "run\n2\n1\n" {
		t.Errorf("volumes on disk stay, those in memory do not; the container says %q", got)
	}
	limited()
	after := a.State(t, key)
	if after.Sandbox.UID != before.Sandbox.UID || after.Sandbox.ID != before.Sandbox.ID || !after.Sandbox.Alive || len(after.Sandbox.IPs) == 0 {
		t.Errorf("sandbox was %+v, is %+v", before.Sandbox, after.Sandbox)
	}
	ctrdtest.Check(t, a.Apply(t.Context(), key, pod, runner.Action{Kind: runner.ReviveSandbox})) // again, to no effect
	if logs := trees.Names(a.Dirs.ContainerLogDir(key, after.Sandbox.UID, "c")); !slices.Equal(logs, []string{"0.log", "1.log"}) {
		t.Errorf("logs: %v", logs)
	}
	ctrdtest.Check(t, ctrdtest.RemovePod(t.Context(), a, key))
	a.End(t)
}

// TestANewSandboxCanTakeThePodsFilesOver is what happens to a pod with init containers after a reboot.
func TestANewSandboxCanTakeThePodsFilesOver(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	a := w.Open(t)
	defer func() { a.End(t) }()
	pod := volumePod(t, "heir", "echo x >> /e/runs; wc -l < /e/runs; sleep 1000", "[{name: e, mountPath: /e}]", "[{name: e, emptyDir: {}}]")
	key := pod.Key()
	for i := range 3 {
		ctrdtest.Check(t, ctrdtest.StartPod(t.Context(), a, pod))
		ctrdtest.Within(t, 10*time.Second, "it has written", func() bool { return strings.TrimSpace(a.LogOf(t, key)) != "" })
		if got, want := strings.TrimSpace(a.LogOf(t, key)), []string{"1", "2", "3"}[i]; got != want {
			t.Errorf("run %d finds %s lines", i, got)
		}
		c := a.State(t, key).Containers[0]
		ctrdtest.Check(t, a.Apply(t.Context(), key, nil, runner.Action{Kind: runner.RemoveContainer, Container: "c", ContainerID: c.ID}))
		ctrdtest.Check(t, a.Apply(t.Context(), key, nil, runner.Action{Kind: runner.RemoveSandbox, KeepFiles: i < 2}))
		if i == 0 { // cut off before there is another sandbox
			a.Idle(t)
		}
	}
	a.Idle(t)
	if left := trees.Names(a.Dirs.PodsDir()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
