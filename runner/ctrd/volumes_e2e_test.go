//go:build e2e

package ctrd

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

	"monopod/e2e/testimages"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/record"
	"monopod/runner/ctrd/shims"
	"monopod/runner/ctrd/trees"
)

// volumePod is a pod with one container c that runs a script; mounts and volumes are YAML lists. It is privileged if it
// passes mounts on.
func volumePod(t testing.TB, name, script, mounts, volumes string) *manifests.Pod {
	t.Helper()
	return load(t, fmt.Sprintf(`
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
`, name, testImage, "exec 2>&1; "+script, strings.Contains(mounts, "Propagation"), mounts, volumes))
}

// output runs a pod to its end, removes it and returns what it wrote.
func (a *agent) output(t testing.TB, pod *manifests.Pod) string {
	t.Helper()
	check(t, startPod(t.Context(), a, pod))
	c := a.exit(t, pod.Key())
	check(t, a.Apply(t.Context(), pod.Key(), nil, runner.Action{Kind: runner.FinishContainer, Container: "c", ContainerID: c.ID, Exit: c.Exit}))
	out := a.logOf(t, pod.Key())
	check(t, removePod(t.Context(), a, pod.Key()))
	a.idle(t)
	return out
}

// logOf returns the lines that the pod's newest container has written, without the times.
func (a *agent) logOf(t testing.TB, key manifests.Key) string {
	t.Helper()
	all := a.index.OfPod(key)
	path := all[len(all)-1].Meta.LogPath
	var out strings.Builder
	b, err := os.ReadFile(path)
	check(t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.SplitN(line, " ", 4); len(f) == 4 {
			out.WriteString(f[3])
		}
	}
	return out.String()
}

// refused says with which error the pod's container cannot be created, and checks that nothing of it is left.
func (a *agent) refused(t testing.TB, pod *manifests.Pod, want string) {
	t.Helper()
	err := startPod(t.Context(), a, pod)
	var step *runner.StepError
	if !errors.As(err, &step) || step.Reason != runner.ReasonCreateContainerConfigError || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %s", err, want)
	}
	if left := trees.Names(a.dirs.Path("subpaths")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	check(t, removePod(context.WithoutCancel(t.Context()), a, pod.Key()))
	a.idle(t)
}

func TestSubPathsAreMounted(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	data := filepath.Join(w.dir, "data")
	check(t, os.MkdirAll(filepath.Join(data, "dir"), 0o755))
	check(t, os.Chmod(data, 0o775))
	check(t, os.WriteFile(filepath.Join(data, "dir", "file"), []byte("one file\n"), 0o644))
	check(t, os.Symlink("dir", filepath.Join(data, "link")))
	got := a.output(t, volumePod(t, "sub", "cat /file; cat /link/file; echo x > /expr/made; stat -c %a /expr; touch /ro/x; ls /dir /expr",
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
	if left := trees.Names(a.dirs.Path("subpaths")); len(left) > 0 {
		t.Errorf("bind mounts are left: %v", left)
	}
}

// TestSubPathsDoNotLeadOut has a volume whose owner wants to see the machine (CVE-2017-1002101), or have something made
// there: what an earlier pod has put into a volume is never followed (CVE-2025-9566).
func TestSubPathsDoNotLeadOut(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	data, outside := filepath.Join(w.dir, "data"), filepath.Join(w.dir, "outside")
	check(t, os.Mkdir(data, 0o777))
	check(t, os.Mkdir(outside, 0o755))
	volumes := `[{name: d, hostPath: {path: ` + data + `}}]`
	a.output(t, volumePod(t, "plants", "ln -s "+outside+" /d/abs; ln -s ../outside /d/rel; ln -s / /d/root; ln -s /proc/self/root /d/proc",
		"[{name: d, mountPath: /d}]", volumes))
	for i, sub := range []string{"abs", "abs/made", "rel", "rel/made", "root", "root/etc", "proc", "proc/etc"} {
		pod := volumePod(t, fmt.Sprintf("out%d", i), "ls /x", "[{name: d, mountPath: /x, subPath: "+sub+"}]", volumes)
		a.refused(t, pod, `failed to prepare subPath for volumeMount "d" of container "c"`)
	}
	if made := trees.Names(outside); len(made) > 0 {
		t.Errorf("made outside: %v", made)
	}
	a.refused(t, volumePod(t, "empty", "true", "[{name: d, mountPath: /x, subPathExpr: $(NONE)}]", volumes), `missing value for "NONE"`)
}

// TestASwapWhileMountingDoesNotLeadOut is CVE-2021-25741.
func TestASwapWhileMountingDoesNotLeadOut(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	data, outside := filepath.Join(w.dir, "data"), filepath.Join(w.dir, "outside")
	check(t, os.MkdirAll(filepath.Join(data, "good"), 0o777))
	check(t, os.MkdirAll(outside, 0o755))
	check(t, os.WriteFile(filepath.Join(outside, "secret"), nil, 0o644))
	check(t, os.Symlink(outside, filepath.Join(data, "evil")))
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
		if err := startPod(t.Context(), a, pod); err == nil {
			ran++
			pid := a.pidOf(t, pod.Key())
			if seen := trees.Names(fmt.Sprintf("/proc/%d/root/x", pid)); len(seen) > 0 {
				t.Errorf("the container sees %v", seen)
			}
		}
		check(t, removePod(t.Context(), a, pod.Key()))
	}
	if ran == 0 {
		t.Error("no container came to run")
	}
	a.idle(t)
}

func TestMountPropagation(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	data := filepath.Join(w.dir, "data")
	check(t, os.Mkdir(data, 0o755))
	volumes := `[{name: d, hostPath: {path: ` + data + `}}]`
	for mode, want := range map[string]string{"Bidirectional": "but it is not a shared mount", "HostToContainer": "but it is not a shared or slave mount"} {
		a.refused(t, volumePod(t, "refused-"+strings.ToLower(mode), "true", "[{name: d, mountPath: /d, mountPropagation: "+mode+"}]", volumes), want)
	}
	check(t, unix.Mount(data, data, "", unix.MS_BIND, ""))
	defer func() { check(t, unix.Unmount(data, unix.MNT_DETACH)) }()
	check(t, unix.Mount("", data, "", unix.MS_SHARED, ""))
	for _, d := range []string{"host", "both", "sub/host"} {
		check(t, os.MkdirAll(filepath.Join(data, d), 0o755))
	}
	pod := volumePod(t, "prop", "mount -t tmpfs x /both/both; mkdir /own/m; mount -t tmpfs x /own/m; mkdir /both/ready; sleep 1000",
		`[{name: d, mountPath: /none}, {name: d, mountPath: /down, mountPropagation: HostToContainer},
          {name: d, mountPath: /both, mountPropagation: Bidirectional}, {name: e, mountPath: /own, mountPropagation: Bidirectional},
          {name: d, mountPath: /sub, subPath: sub, mountPropagation: HostToContainer}]`,
		`[{name: d, hostPath: {path: `+data+`}}, {name: e, emptyDir: {}}]`)
	check(t, startPod(t.Context(), a, pod))
	root := fmt.Sprintf("/proc/%d/root", a.pidOf(t, pod.Key()))
	within(t, 10*time.Second, "the container has mounted", func() bool { _, err := os.Stat(filepath.Join(data, "ready")); return err == nil })
	for _, at := range []string{"host", "sub/host"} {
		check(t, unix.Mount("tmpfs", filepath.Join(data, at), "tmpfs", 0, ""))
		check(t, os.WriteFile(filepath.Join(data, at, "mark"), nil, 0o600))
	}
	for path, want := range map[string]bool{"none/host/mark": false, "down/host/mark": true, "both/host/mark": true, "sub/host/mark": true} {
		if _, err := os.Stat(filepath.Join(root, path)); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	own := filepath.Join(a.dirs.PodDir(a.state(t, pod.Key()).Sandbox.UID), "volumes", "kubernetes.io~empty-dir", "e", "m")
	for _, path := range []string{filepath.Join(data, "both"), own} {
		if !trees.IsMountPoint(path) {
			t.Errorf("what the container mounted at %s is not seen", path)
		}
	}
	check(t, removePod(t.Context(), a, pod.Key()))
	a.idle(t)
	for _, at := range []string{"host/mark", "sub/host/mark"} {
		if _, err := os.Stat(filepath.Join(data, at)); err != nil {
			t.Errorf("the pod took a mount of the host with it: %v", err)
		}
	}
}

func TestReadOnlyBelowAMount(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer a.end(t)
	data := filepath.Join(w.dir, "data")
	check(t, os.MkdirAll(filepath.Join(data, "inner"), 0o755))
	check(t, unix.Mount("tmpfs", filepath.Join(data, "inner"), "tmpfs", 0, ""))
	defer func() { check(t, unix.Unmount(filepath.Join(data, "inner"), unix.MNT_DETACH)) }()
	got := a.output(t, volumePod(t, "rro", "for d in plain all maybe; do touch /$d/x; touch /$d/inner/x; done; echo; cp /bin/busybox /opt/x; /opt/x true || grep ' /opt ' /proc/mounts",
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
	w := newWorld(t)
	img := testimages.Busybox(t, func(c *v1.Config) {
		c.Volumes = map[string]struct{}{"/home": {}, "/data/new": {}, "/etc": {}}
	})
	testimages.ArchiveOf(t, filepath.Join(w.dir, "images", "volumes.tar"), img, "example.com/volumes:1")
	a := w.open(t)
	defer a.end(t)
	pod := volumePod(t, "image", "touch /home/app/x /data/new/x && touch /etc/passwd; touch /opt/x; sleep 1000",
		"[{name: e, mountPath: /etc}]", "[{name: e, emptyDir: {}}]")
	c := &pod.Object.Spec.Containers[0]
	c.Image = "example.com/volumes:1"
	c.SecurityContext.ReadOnlyRootFilesystem = new(true)
	check(t, startPod(t.Context(), a, pod))
	uid := a.state(t, pod.Key()).Sandbox.UID
	root := fmt.Sprintf("/proc/%d/root", a.pidOf(t, pod.Key()))
	for _, file := range []string{"home/app/x", "data/new/x", "etc/passwd"} { // etc is the pod's own volume
		within(t, 10*time.Second, file+" is written", func() bool { _, err := os.Stat(filepath.Join(root, file)); return err == nil })
	}
	if fi, err := os.Stat(filepath.Join(root, "home", "app")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", fi, err)
	}
	if _, err := os.Stat(filepath.Join(root, "opt", "x")); err == nil {
		t.Error("the root file system is not read-only")
	}
	dir := a.dirs.ImageVolumeDir(uid, "")
	first := trees.Names(dir)
	if len(first) != 1 || len(trees.Names(filepath.Join(dir, first[0]))) != 2 {
		t.Fatalf("volumes are %v", first)
	}
	// The next instance has new ones, the old go with theirs.
	check(t, a.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.CreateContainer, Container: "c"}))
	check(t, a.Apply(t.Context(), pod.Key(), nil, runner.Action{Kind: runner.RemoveContainer, Container: "c", ContainerID: first[0]}))
	if now := trees.Names(dir); len(now) != 1 || now[0] == first[0] {
		t.Errorf("volumes are %v, were %v", now, first)
	}
	check(t, os.Mkdir(filepath.Join(dir, "left-by-a-crash"), 0o755))
	a.stop(t)
	*a = *w.open(t)
	if now := trees.Names(dir); slices.Contains(now, "left-by-a-crash") {
		t.Errorf("volumes are %v", now)
	}
	check(t, removePod(t.Context(), a, pod.Key()))
	a.idle(t)
}

func TestAnImageIsAVolume(t *testing.T) {
	w := newWorld(t)
	img := testimages.FromFiles(t, []testimages.File{
		{Path: "dir", Mode: 0o755},
		{Path: "dir/file", Content: []byte("content\n"), Mode: 0o644},
		{Path: "prog", Content: []byte("#!/bin/sh\necho executed\n"), Mode: 0o755},
		{Path: "out", Link: "../../../../../../../..", Mode: 0o777},
	}, nil)
	testimages.ArchiveOf(t, filepath.Join(w.dir, "images", "data.tar"), img, "example.com/data:1")
	a := w.open(t)
	defer a.end(t)
	volumes := "[{name: i, image: {reference: example.com/data:1, pullPolicy: IfNotPresent}}]"
	pod := volumePod(t, "iv", "cat /i/dir/file /d/file; touch /i/x; /i/prog; sleep 1000",
		"[{name: i, mountPath: /i}, {name: i, mountPath: /d, subPath: dir}]", volumes)
	check(t, startPod(t.Context(), a, pod))
	want := []string{"content\ncontent\n", "touch: /i/x: Read-only file system", "sh: /i/prog: Permission denied"}
	within(t, 10*time.Second, "the container has tried everything", func() bool { return strings.Contains(a.logOf(t, pod.Key()), want[2]) })
	for _, text := range want {
		if got := a.logOf(t, pod.Key()); !strings.Contains(got, text) {
			t.Errorf("no %q in %s", text, got)
		}
	}
	a.stop(t)
	*a = *w.open(t)
	sandbox := a.state(t, pod.Key()).Sandbox.ID
	if mounted := trees.Names(a.dirs.Path("image-volumes", sandbox)); len(mounted) != 1 || !trees.IsMountPoint(a.dirs.Path("image-volumes", sandbox, mounted[0])) {
		t.Errorf("mounted after a restart: %v", mounted)
	}
	// Another instance shares the mount.
	check(t, a.Apply(t.Context(), pod.Key(), pod, runner.Action{Kind: runner.CreateContainer, Container: "c"}))
	// A removal that is cut off after the mounts is done again. No namespace can have this name.
	if err := a.removal.ImageVolumes.DropImageVolumes(namespaces.WithNamespace(t.Context(), "Not/Valid"), sandbox); err == nil {
		t.Error("snapshots are removed in no namespace")
	}
	check(t, removePod(t.Context(), a, pod.Key()))
	a.idle(t)
	if left := trees.Names(a.dirs.Path("image-volumes")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	check(t, a.client.SnapshotService(a.cfg.Snapshotter).Walk(a.ns(t.Context()), func(_ context.Context, i snapshots.Info) error {
		if i.Labels[record.LabelSandbox] != "" {
			t.Errorf("snapshot %s is left", i.Name)
		}
		return nil
	}))
	for _, sub := range []string{"none", "out/etc"} {
		a.refused(t, volumePod(t, "iv-sub", "true", "[{name: i, mountPath: /i, subPath: "+sub+"}]", volumes), "failed to prepare subPath")
	}
	missing := volumePod(t, "iv-none", "true", "[{name: i, mountPath: /i}]", "[{name: i, image: {reference: example.com/none:1, pullPolicy: Never}}]")
	err := startPod(t.Context(), a, missing)
	var step *runner.StepError
	if !errors.As(err, &step) || step.Reason != runner.ReasonErrImageNeverPull {
		t.Errorf("error is %v", err)
	}
	check(t, removePod(t.Context(), a, missing.Key()))
	a.idle(t)
}

// powerCut leaves of an instance what a power cut leaves: no process, no cgroup, no mount, nothing in /run.
func (w *world) powerCut(t testing.TB, a *agent, pids ...uint32) {
	t.Helper()
	found := a.lifecycle.Shims.OwnShims()
	a.stop(t)
	for _, pid := range pids {
		check(t, unix.Kill(int(pid), unix.SIGKILL))
	}
	for pid, p := range found {
		check(t, shims.KillShim(pid, p.ID))
	}
	for _, pid := range pids {
		within(t, 10*time.Second, "the process is gone", func() bool {
			_, _ = unix.Wait4(int(pid), nil, unix.WNOHANG, nil) // an orphan of ours by now
			return !alive(pid)
		})
	}
	check(t, a.podCgroups.Cgroups.Remove(t.Context(), a.podCgroups.Cgroups.AllPods()))
	for _, d := range []string{w.run, w.dir} {
		check(t, trees.Unmount(d))
	}
	for _, name := range trees.Names(w.run) {
		check(t, os.RemoveAll(filepath.Join(w.run, name)))
	}
}

// TestAPodKeepsItsDiskOverAReboot revives a sandbox, cut off at first.
func TestAPodKeepsItsDiskOverAReboot(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	pod := load(t, `
apiVersion: v1
kind: Pod
metadata: {name: phoenix}
spec:
  containers:
  - name: c
    image: `+testImage+`
    command: [sh, -c, "echo run; echo x >> /disk/runs; echo x >> /mem/runs; wc -l < /disk/runs; wc -l < /mem/runs; exec sleep 1000"]
    resources: {requests: {cpu: 250m}, limits: {cpu: 500m, memory: 64Mi}}
    volumeMounts: [{name: disk, mountPath: /disk}, {name: mem, mountPath: /mem}]
  volumes: [{name: disk, emptyDir: {}}, {name: mem, emptyDir: {medium: Memory}}]
`)
	key := pod.Key()
	limited := func() {
		t.Helper()
		cg := filepath.Dir(a.containerCgroup(t, key))
		if got, want := a.limits(t, cg), "quota 50000 memory 67108864"; got != want {
			t.Errorf("the pod has %s, want %s", got, want)
		}
		for _, of := range []string{cg, filepath.Dir(cg)} {
			if got := a.weight(t, of); got != a.weightOf(256) {
				t.Errorf("%s weighs %s, want %s", of, got, a.weightOf(256))
			}
		}
	}
	check(t, startPod(t.Context(), a, pod))
	within(t, 10*time.Second, "it has written", func() bool { return a.logOf(t, key) == "run\n1\n1\n" })
	limited()
	before := a.state(t, key)
	w.powerCut(t, a, before.Containers[0].PID)

	a = w.open(t)
	st := a.state(t, key)
	if st.Sandbox == nil || st.Sandbox.Alive || len(st.Containers) != 1 || st.Containers[0].State != runner.ContainerExited {
		t.Fatalf("after the power cut: %+v", st)
	}
	// Cut off after the record was written: the sandbox is still not taken for alive.
	_, err := a.records.UpdateSandbox(a.ns(t.Context()), st.Sandbox.ID, func(s *record.Sandbox) { s.Network = record.NetworkResult{} }, record.ExtNetwork)
	check(t, err)
	a.stop(t)
	a = w.open(t)
	if a.state(t, key).Sandbox.Alive {
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
	within(t, 10*time.Second, "it has written again", func() bool { return strings.Count(a.logOf(t, key), "\n") == 3 })
	if got := a.logOf(t, key); got != "run\n2\n1\n" {
		t.Errorf("volumes on disk stay, those in memory do not; the container says %q", got)
	}
	limited()
	after := a.state(t, key)
	if after.Sandbox.UID != before.Sandbox.UID || after.Sandbox.ID != before.Sandbox.ID || !after.Sandbox.Alive || len(after.Sandbox.IPs) == 0 {
		t.Errorf("sandbox was %+v, is %+v", before.Sandbox, after.Sandbox)
	}
	check(t, a.Apply(t.Context(), key, pod, runner.Action{Kind: runner.ReviveSandbox})) // again, to no effect
	if logs := trees.Names(a.dirs.ContainerLogDir(key, after.Sandbox.UID, "c")); !slices.Equal(logs, []string{"0.log", "1.log"}) {
		t.Errorf("logs: %v", logs)
	}
	check(t, removePod(t.Context(), a, key))
	a.end(t)
}

// TestANewSandboxCanTakeThePodsFilesOver is what happens to a pod with init containers after a reboot.
func TestANewSandboxCanTakeThePodsFilesOver(t *testing.T) {
	w := newWorld(t)
	a := w.open(t)
	defer func() { a.end(t) }()
	pod := volumePod(t, "heir", "echo x >> /e/runs; wc -l < /e/runs; sleep 1000", "[{name: e, mountPath: /e}]", "[{name: e, emptyDir: {}}]")
	key := pod.Key()
	for i := range 3 {
		check(t, startPod(t.Context(), a, pod))
		within(t, 10*time.Second, "it has written", func() bool { return strings.TrimSpace(a.logOf(t, key)) != "" })
		if got, want := strings.TrimSpace(a.logOf(t, key)), []string{"1", "2", "3"}[i]; got != want {
			t.Errorf("run %d finds %s lines", i, got)
		}
		c := a.state(t, key).Containers[0]
		check(t, a.Apply(t.Context(), key, nil, runner.Action{Kind: runner.RemoveContainer, Container: "c", ContainerID: c.ID}))
		check(t, a.Apply(t.Context(), key, nil, runner.Action{Kind: runner.RemoveSandbox, KeepFiles: i < 2}))
		if i == 0 { // cut off before there is another sandbox
			a.idle(t)
		}
	}
	a.idle(t)
	if left := trees.Names(a.dirs.PodsDir()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
