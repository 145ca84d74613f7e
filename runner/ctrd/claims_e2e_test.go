//go:build e2e

package ctrd

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/trees"
)

// claimPod is a pod of one container that runs a script and then sleeps.
func claimPod(name, script, mounts, volumes string, more ...string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  %s
  containers:
  - name: c
    image: %s
    command: [sh, -c, %q]
    %s
  volumes: %s
`, name, strings.Join(more, "\n  "), testImage, "exec 2>&1; "+script+"; exec sleep 1000", mounts, volumes)
}

const (
	onData = "volumeMounts: [{name: d, mountPath: /data}]"
	byData = "[{name: d, persistentVolumeClaim: {claimName: data}}]"
)

func claim(name, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}%s}\n", name, more)
}

func volumeYAML(name, size, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: %s}\nspec: {accessModes: [ReadWriteOnce], capacity: {storage: %s}, %s}\n", name, size, more)
}

// waits checks that a pod waits for its volume with a text.
func (s *stage) waits(name, text string) {
	s.t.Helper()
	reason, why := "", ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if reason, why = s.why(name); reason == runner.ReasonFailedMount && strings.Contains(why, text) {
			return
		}
	}
	s.t.Fatalf("pod %s: %s %q, want %q", name, reason, why, text)
}

// clear removes all manifests and waits until the pods are gone.
func (s *stage) clear() {
	s.t.Helper()
	s.play("# nothing")
	within(s.t, 20*time.Second, "the pods are gone", func() bool { return len(s.pool.Pods())+len(s.index.List()) == 0 })
	s.idle(s.t)
}

func (s *stage) pid(name string) uint32 {
	s.t.Helper()
	return s.pidOf(s.t, manifests.Key{Namespace: "default", Name: name})
}

// again closes the agent and starts the next one on its state. The pods keep running.
func (w *world) again(s *stage, between func()) *stage {
	s.t.Helper()
	s.stop()
	s.agent.stop(s.t)
	between()
	return w.stage(s.t)
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	return string(b)
}

// TestAPodWaitsForItsClaim checks that a pod starts once its claim exists, and keeps running after the claim is deleted.
func TestAPodWaitsForItsClaim(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t)
	defer func() { s.close() }()
	pod := claimPod("a", "cat /data/n; echo x >> /data/n; echo ready $(wc -l < /data/n)", onData, byData)
	s.play(pod)
	s.waits("a", `persistentvolumeclaim "data" not found`)
	s.play(pod, claim("data", ""))
	s.waitOutput("a", "ready 1")
	pid := s.pid("a")
	s.play(pod)
	s = w.again(s, func() {})
	s.play(pod)
	check(t, syscall.Kill(int(pid), syscall.SIGKILL))
	s.waitOutput("a", "ready 2")
}

// TestADirectoryOutlivesThePod checks that data are available to the next pod of the claim, and to another pod at the same time.
func TestADirectoryOutlivesThePod(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t)
	defer func() { s.close() }()
	writer := claimPod("a", "echo kept > /data/file; echo done", onData, byData, "securityContext: {runAsUser: 1000, runAsGroup: 1000}")
	reader := claimPod("b", "cat /data/file /one; touch /data/new; echo end", "volumeMounts: [{name: d, mountPath: /data}, {name: d, mountPath: /one, subPath: file}]",
		"[{name: d, persistentVolumeClaim: {claimName: data, readOnly: true}}]")
	class := ", storageClassName: local-path"
	s.play(writer, claim("data", class))
	s.waitOutput("a", "done")
	s.clear()
	s = w.again(s, func() {})
	s.play(claim("data", class), reader, claimPod("c", "cat /data/file; echo end", onData, byData))
	s.waitOutput("b", "kept\nkept\ntouch: /data/new: Read-only file system\nend")
	s.waitOutput("c", "kept\nend")
	if got := read(t, filepath.Join(w.dir, "root", "volumes", "default", "data", "file")); got != "kept\n" {
		t.Errorf("the directory holds %q", got)
	}
}

// TestClaimsGetTheVolumesThatFit checks that each claim gets the smallest volume that fits, keeps it after a restart although
// smaller ones have been added, and gets none if the pod must wait.
func TestClaimsGetTheVolumesThatFit(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t)
	defer func() { s.close() }()
	dir := func(name string) string { return filepath.Join(w.dir, name) }
	host := func(name, size string) string {
		return volumeYAML(name, size, "storageClassName: disks, hostPath: {path: "+dir(name)+"}")
	}
	use := func(name string) string {
		return claimPod(name, "echo "+name+" >> /data/by; echo ready", onData, "[{name: d, persistentVolumeClaim: {claimName: "+name+"}}]")
	}
	class := ", storageClassName: disks"
	small, big, medium, exact := host("small", "500Mi"), host("big", "10Gi"), host("medium", "2Gi"), host("exact", "1Gi")
	s.play(small, big, medium, claim("a", class), use("a"))
	s.waitOutput("a", "ready")
	s.play(small, big, medium, claim("a", class), use("a"), claim("b", class), use("b"))
	s.waitOutput("b", "ready")
	s.play(small, big, medium, claim("a", class), use("a"), claim("b", class), use("b"), claim("c", class), use("c"))
	s.waits("c", `class "disks" is one of PersistentVolumes`)
	s.clear()
	s = w.again(s, func() {})
	s.play(exact, small, big, medium, claim("c", class), use("c"), claim("b", class), use("b"), claim("a", class), use("a"))
	for _, name := range []string{"a", "b", "c"} {
		s.waitOutput(name, "ready")
	}
	for name, want := range map[string]string{"medium": "a\na\n", "big": "b\nb\n", "exact": "c\n"} {
		if got := read(t, filepath.Join(dir(name), "by")); got != want {
			t.Errorf("volume %s was used by %q, want %q", name, got, want)
		}
	}
	if _, err := os.Stat(dir("small")); err == nil {
		t.Error("the volume that is too small was used")
	}
}

// TestVolumesOfTheGroup checks that fsGroup applies to directories of claims and local volumes, not to hostPath.
func TestVolumesOfTheGroup(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t)
	defer func() { s.close() }()
	local, host := filepath.Join(w.dir, "local"), filepath.Join(w.dir, "host")
	for _, d := range []string{local, host} {
		check(t, os.MkdirAll(d, 0o755))
		check(t, os.WriteFile(filepath.Join(d, "f"), nil, 0o600))
	}
	here := "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}"
	s.play(
		volumeYAML("elsewhere", "1Gi", "storageClassName: l, local: {path: /nowhere}, "+fmt.Sprintf(here, "another")),
		volumeYAML("here", "1Gi", "storageClassName: l, local: {path: "+local+"}, "+fmt.Sprintf(here, "node")),
		volumeYAML("host", "1Gi", "storageClassName: h, hostPath: {path: "+host+"}"),
		claim("local", ", storageClassName: l"), claim("host", ", storageClassName: h"), claim("own", ""),
		claimPod("a", "stat -c '%n %g %a' /local/f /host/f /own; touch /own/x; echo x > /local/f; stat -c %g /own/x; echo end",
			"volumeMounts: [{name: local, mountPath: /local}, {name: host, mountPath: /host}, {name: own, mountPath: /own}]",
			"[{name: local, persistentVolumeClaim: {claimName: local}}, {name: host, persistentVolumeClaim: {claimName: host}}, {name: own, persistentVolumeClaim: {claimName: own}}]",
			"securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 4321}"))
	s.waitOutput("a", "/local/f 4321 660\n/host/f 0 600\n/own 4321 2777\n4321\nend")
}

const deleting = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: scratch}\nprovisioner: rancher.io/local-path\n%s\n"

// TestADirectoryGoesWithItsClaim checks the reclaim policy Delete, which waits until no pod uses the claim.
func TestADirectoryGoesWithItsClaim(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t)
	defer func() { s.close() }()
	dir := func(name string) string { return filepath.Join(w.dir, "root", "volumes", "default", name) }
	exists := func(name string) bool { _, err := os.Stat(dir(name)); return err == nil }
	class, pod := fmt.Sprintf(deleting, "reclaimPolicy: Delete"), claimPod("a", "echo x > /data/x; echo ready", onData, byData)
	s.play(class, claim("data", ", storageClassName: scratch"), pod, claim("kept", ""),
		claimPod("b", "echo ready", onData, "[{name: d, persistentVolumeClaim: {claimName: kept}}]"))
	s.waitOutput("a", "ready")
	s.waitOutput("b", "ready")
	s.play(pod)
	within(t, 20*time.Second, "the other pod is gone", func() bool { return len(s.pool.Pods()) == 1 })
	s.idle(t)
	if !exists("data") {
		t.Fatal("the directory of a running pod was removed")
	}
	s.play("# nothing")
	within(t, 20*time.Second, "the directory is gone", func() bool { return !exists("data") })
	s.idle(t)
	if !exists("kept") {
		t.Error("a directory was removed whose class does not say so")
	}
	if left := trees.Names(filepath.Join(w.dir, "root", "volumes", ".removed")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestOnePodAtATime is ReadWriteOncePod.
func TestOnePodAtATime(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t)
	defer func() { s.close() }()
	alone := strings.Replace(claim("data", ""), "ReadWriteOnce]", "ReadWriteOncePod]", 1)
	a, b := claimPod("a", "echo ready", onData, byData), claimPod("b", "echo ready", onData, byData)
	s.play(alone, a)
	s.waitOutput("a", "ready")
	s.play(alone, a, b)
	s.waits("b", "in use by pod default/a")
	s.play(alone, b)
	s.waitOutput("b", "ready")
}

const scratch = "[{name: d, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}%s}}}}]"

// TestEphemeralVolumes checks that they outlive containers and the agent, but not the pod, and that a PersistentVolume is free
// again afterwards.
func TestEphemeralVolumes(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t)
	defer func() { s.close() }()
	disk := filepath.Join(w.dir, "disk")
	pv := volumeYAML("disk", "1Gi", "storageClassName: disks, hostPath: {path: "+disk+"}")
	script := "echo x >> /data/n; echo lines $(wc -l < /data/n)"
	own := claimPod("a", script, onData, fmt.Sprintf(scratch, ""))
	bound := func(name string) string {
		return claimPod(name, script, onData, fmt.Sprintf(scratch, ", storageClassName: disks"))
	}
	s.play(own, pv, bound("b"))
	s.waitOutput("a", "lines 1")
	s.waitOutput("b", "lines 1")
	uid := s.index.Sandbox(manifests.Key{Namespace: "default", Name: "a"}).Meta.UID
	s.play(own, pv, bound("b"), bound("c"))
	s.waits("c", "disk belongs to claim default/b-d")
	s = w.again(s, func() {})
	s.play(own, pv, bound("b"), bound("c"))
	check(t, syscall.Kill(int(s.pid("a")), syscall.SIGKILL))
	s.waitOutput("a", "lines 2")
	s.play(pv, bound("c"))
	s.waitOutput("c", "lines 2") // after those of b
	within(t, 20*time.Second, "the pod is gone", func() bool { return len(s.pool.Pods()) == 1 })
	s.idle(t)
	if _, err := os.Stat(s.dirs.PodDir(uid)); err == nil {
		t.Error("the directory of the pod is still there")
	}
	s.play(own, claim("a-d", ""))
	s.waits("a", `PVC "default/a-d" was not created for pod "default/a" (pod is not owner)`)
	s.play(own)
	s.waitOutput("a", "lines 1")
}

// loopDevice makes a block device of a file.
func loopDevice(t testing.TB, file string) string {
	t.Helper()
	f, err := os.Create(file)
	check(t, err)
	check(t, f.Truncate(16<<20))
	check(t, f.Close())
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() { check(t, exec.Command("losetup", "--detach", dev).Run()) })
	return dev
}

// TestBlockDevices checks that a claim in mode Block is a device in the container, with its access mode, and that other files are
// refused.
func TestBlockDevices(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t)
	dev := loopDevice(t, filepath.Join(w.dir, "disk.img"))
	defer func() { s.close() }()
	link := filepath.Join(w.dir, "by-id")
	check(t, os.Symlink(dev, link))
	check(t, os.WriteFile(dev, []byte("content of the disk\n"), 0o600))
	here := "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]}}"
	docs := []string{
		volumeYAML("disk", "1Gi", "storageClassName: raw, volumeMode: Block, local: {path: "+link+"}, "+here),
		volumeYAML("file", "1Gi", "storageClassName: nodev, volumeMode: Block, hostPath: {path: "+w.dir+"}"),
		claim("raw", ", storageClassName: raw, volumeMode: Block"), claim("nodev", ", storageClassName: nodev, volumeMode: Block"), claim("dir", ""),
	}
	pod := func(name, claim, script, use string, more ...string) string {
		return claimPod(name, script, use, "[{name: d, persistentVolumeClaim: {claimName: "+claim+"}}]", more...)
	}
	const device = "volumeDevices: [{name: d, devicePath: /dev/xvda}]"
	s.play(append(docs,
		pod("rw", "raw", "head -c 20 /dev/xvda; echo changed | dd of=/dev/xvda conv=notrunc 2>/dev/null && echo written", device),
		pod("dir", "dir", "true", device),
		pod("mounted", "raw", "true", onData),
		pod("nodev", "nodev", "true", device))...)
	s.waitOutput("rw", "content of the disk\nwritten")
	s.waits("dir", "volume d has volumeMode Filesystem, but is specified in volumeDevices")
	s.waits("mounted", "volume d has volumeMode Block, but is specified in volumeMounts")
	s.waits("nodev", "is not a block device")
	s.play(append(docs, claimPod("ro", "head -c 8 /dev/xvda; echo no > /dev/xvda; echo end; mknod /x b 7 "+strings.TrimPrefix(dev, "/dev/loop")+"; head -c 8 /x; echo no > /x", device,
		"[{name: d, persistentVolumeClaim: {claimName: raw, readOnly: true}}]"),
		pod("priv", "raw", "head -c 8 /dev/xvda; ls /dev/loop-control", device+"\n    securityContext: {privileged: true}"))...)
	s.waitOutput("ro", "changed\nsh: can't create /dev/xvda: Operation not permitted\nend\nchanged\nsh: can't create /x: Operation not permitted")
	s.waitOutput("priv", "changed\n/dev/loop-control")
	if got := read(t, filepath.Join(w.dir, "disk.img")); !strings.HasPrefix(got, "changed\nof the disk\n") {
		t.Errorf("the disk holds %q", got[:20])
	}
}

// TestADiskWithAFileSystem has a local volume whose path is a device: an empty device is formatted, and mounted for the pod.
func TestADiskWithAFileSystem(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t)
	dev := loopDevice(t, filepath.Join(w.dir, "disk.img"))
	defer func() { s.close() }()
	here := "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]}}"
	docs := func(fsType string) []string {
		return []string{volumeYAML("disk", "1Gi", "storageClassName: d, mountOptions: [noatime], local: {path: "+dev+fsType+"}, "+here), claim("data", ", storageClassName: d")}
	}
	pod := claimPod("a", "grep ' /data ' /proc/mounts; ls /data; cat /data/file; echo kept > /data/file; echo end", onData, byData)
	s.play(append(docs(", fsType: ext4"), pod)...)
	s.waitOutput("a", "lost+found")
	s.waitOutput("a", "end")
	if out := s.output("a"); !strings.Contains(out, "ext4 rw,noatime") {
		t.Errorf("it is mounted as %s", out)
	}
	s = w.again(s, func() {})
	s.clear()
	if mounts := read(t, "/proc/self/mounts"); strings.Contains(mounts, dev+" ") {
		t.Errorf("%s is still mounted: %s", dev, mounts)
	}
	s.play(append(docs(", fsType: xfs"), pod)...)
	s.waits("a", "it is not overwritten")
	s.play(append(docs(""), strings.Replace(pod, "name: a}", "name: b}", 1))...)
	s.waitOutput("b", "kept\nend")
}

// TestAnUnreadableBookLosesNothing checks that claims find their directories, and objects have the rest.
func TestAnUnreadableBookLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.log = slog.New(slog.DiscardHandler) // it complains
	s := w.stage(t)
	defer func() { s.close() }()
	docs := []string{claim("data", ""), claimPod("a", "echo x >> /data/n; echo lines $(wc -l < /data/n)", onData, byData)}
	s.play(docs...)
	s.waitOutput("a", "lines 1")
	s.clear()
	book := filepath.Join(w.dir, "root", "volumes", "bindings.json")
	s = w.again(s, func() { check(t, os.WriteFile(book, []byte("{"), 0o600)) })
	// A volume that would fit now is not used, because the data are elsewhere.
	s.play(append(docs, volumeYAML("v", "1Gi", "hostPath: {path: "+w.dir+"/v}"))...)
	s.waitOutput("a", "lines 2")
}

// TestTheTemplateOfAnEphemeralVolumeChooses: of two volumes the larger one, because of one field each.
func TestTheTemplateOfAnEphemeralVolumeChooses(t *testing.T) {
	w := newWorld(t)
	s := w.stage(t)
	dev := loopDevice(t, filepath.Join(w.dir, "disk.img"))
	check(t, os.WriteFile(dev, []byte("block-yes\n"), 0o600))
	defer func() { s.close() }()
	const modes, size = "accessModes: [ReadWriteOnce]", "resources: {requests: {storage: 1Gi}}"
	var docs, want []string
	for _, c := range []struct{ name, yes, template string }{
		{"modes", "accessModes: [ReadWriteOnce, ReadWriteMany]", "accessModes: [ReadWriteMany], " + size},
		{"size", modes, modes + ", resources: {requests: {storage: 2Gi}}"},
		{"labels", modes, modes + ", " + size + ", selector: {matchLabels: {name: labels-yes}}"},
		{"expressions", modes, modes + ", " + size + ", selector: {matchExpressions: [{key: name, operator: NotIn, values: [expressions-no]}]}"},
		{"name", modes, modes + ", " + size + ", volumeName: name-yes"},
	} {
		for _, v := range []struct{ name, size, modes string }{{c.name + "-no", "1Gi", modes}, {c.name + "-yes", "3Gi", c.yes}} {
			dir := filepath.Join(w.dir, v.name)
			check(t, os.Mkdir(dir, 0o755))
			check(t, os.WriteFile(filepath.Join(dir, v.name), nil, 0o600))
			docs = append(docs, "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: "+v.name+", labels: {name: "+v.name+"}}\nspec: {storageClassName: "+c.name+", capacity: {storage: "+v.size+"}, hostPath: {path: "+dir+"}, "+v.modes+"}")
		}
		docs = append(docs, claimPod(c.name, "ls /data", onData, "[{name: d, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: "+c.name+", "+c.template+"}}}}]"))
		want = append(want, c.name)
	}
	docs = append(docs,
		volumeYAML("block-no", "1Gi", "storageClassName: block, hostPath: {path: /}"), volumeYAML("block-yes", "2Gi", "storageClassName: block, volumeMode: Block, hostPath: {path: "+dev+"}"),
		claimPod("block", "head -c 10 /dev/x", "volumeDevices: [{name: d, devicePath: /dev/x}]",
			"[{name: d, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: block, volumeMode: Block, "+modes+", "+size+"}}}}]"))
	s.play(docs...)
	for _, name := range append(want, "block") {
		s.waitOutput(name, name+"-yes")
		if out := s.output(name); strings.Contains(out, name+"-no") {
			t.Errorf("%s got %s", name, out)
		}
	}
}
