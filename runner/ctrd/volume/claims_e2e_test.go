//go:build e2e

package volume_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/runner/ctrd/trees"
)

// TestAPodWaitsForItsClaim checks that a pod starts once its claim exists, and keeps running after the claim is deleted.
func TestAPodWaitsForItsClaim(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	defer func() { s.Close() }()
	pod := ctrdtest.ClaimPod("a", "cat /data/n; echo x >> /data/n; echo ready $(wc -l < /data/n)", ctrdtest.OnData, ctrdtest.ByData)
	s.Play(pod)
	s.Waits("a", `persistentvolumeclaim "data" not found`)
	s.Play(pod, ctrdtest.Claim("data", ""))
	s.WaitOutput("a", "ready 1")
	pid := s.PIDOf("a")
	s.Play(pod)
	s = w.Again(s, func() {})
	s.Play(pod)
	ctrdtest.Check(t, syscall.Kill(int(pid), syscall.SIGKILL))
	s.WaitOutput("a", "ready 2")
}

// TestADirectoryOutlivesThePod checks that data are available to the next pod of the claim, and to another pod at the same time.
func TestADirectoryOutlivesThePod(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	defer func() { s.Close() }()
	writer := ctrdtest.ClaimPod("a", "echo kept > /data/file; echo done", ctrdtest.OnData, ctrdtest.ByData, "securityContext: {runAsUser: 1000, runAsGroup: 1000}")
	reader := ctrdtest.ClaimPod("b", "cat /data/file /one; touch /data/new; echo end", "volumeMounts: [{name: d, mountPath: /data}, {name: d, mountPath: /one, subPath: file}]",
		"[{name: d, persistentVolumeClaim: {claimName: data, readOnly: true}}]")
	class := ", storageClassName: local-path"
	s.Play(writer, ctrdtest.Claim("data", class))
	s.WaitOutput("a", "done")
	s.Clear()
	s = w.Again(s, func() {})
	s.Play(ctrdtest.Claim("data", class), reader, ctrdtest.ClaimPod("c", "cat /data/file; echo end", ctrdtest.OnData, ctrdtest.ByData))
	s.WaitOutput("b", "kept\nkept\ntouch: /data/new: Read-only file system\nend")
	s.WaitOutput("c", "kept\nend")
	if got := ctrdtest.Read(t, filepath.Join(w.Dir, "root", "volumes", "default", "data", "file")); got != "kept\n" {
		t.Errorf("the directory holds %q", got)
	}
}

// TestClaimsGetTheVolumesThatFit checks that each claim gets the smallest volume that fits, keeps it after a restart although
// smaller ones have been added, and gets none if the pod must wait.
func TestClaimsGetTheVolumesThatFit(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	defer func() { s.Close() }()
	dir := func(name string) string { return filepath.Join(w.Dir, name) }
	host := func(name, size string) string {
		return ctrdtest.VolumeYAML(name, size, "storageClassName: disks, hostPath: {path: "+dir(name)+"}")
	}
	use := func(name string) string {
		return ctrdtest.ClaimPod(name, "echo "+name+" >> /data/by; echo ready", ctrdtest.OnData, "[{name: d, persistentVolumeClaim: {claimName: "+name+"}}]")
	}
	class := ", storageClassName: disks"
	small, big, medium, exact := host("small", "500Mi"), host("big", "10Gi"), host("medium", "2Gi"), host("exact", "1Gi")
	s.Play(small, big, medium, ctrdtest.Claim("a", class), use("a"))
	s.WaitOutput("a", "ready")
	s.Play(small, big, medium, ctrdtest.Claim("a", class), use("a"), ctrdtest.Claim("b", class), use("b"))
	s.WaitOutput("b", "ready")
	s.Play(small, big, medium, ctrdtest.Claim("a", class), use("a"), ctrdtest.Claim("b", class), use("b"), ctrdtest.Claim("c", class), use("c"))
	s.Waits("c", `class "disks" only has existing PersistentVolumes`)
	s.Clear()
	s = w.Again(s, func() {})
	s.Play(exact, small, big, medium, ctrdtest.Claim("c", class), use("c"), ctrdtest.Claim("b", class), use("b"), ctrdtest.Claim("a", class), use("a"))
	for _, name := range []string{"a", "b", "c"} {
		s.WaitOutput(name, "ready")
	}
	for name, want := range map[string]string{"medium": "a\na\n", "big": "b\nb\n", "exact": "c\n"} {
		if got := ctrdtest.Read(t, filepath.Join(dir(name), "by")); got != want {
			t.Errorf("volume %s was used by %q, want %q", name, got, want)
		}
	}
	if _, err := os.Stat(dir("small")); err == nil {
		t.Error("the volume that is too small was used")
	}
}

// TestVolumesOfTheGroup checks that fsGroup applies to directories of claims and local volumes, not to hostPath.
func TestVolumesOfTheGroup(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	defer func() { s.Close() }()
	local, host := filepath.Join(w.Dir, "local"), filepath.Join(w.Dir, "host")
	for _, d := range []string{local, host} {
		ctrdtest.Check(t, os.MkdirAll(d, 0o755))
		ctrdtest.Check(t, os.WriteFile(filepath.Join(d, "f"), nil, 0o600))
	}
	here := "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%s]}]}]}}"
	s.Play(
		ctrdtest.VolumeYAML("elsewhere", "1Gi", "storageClassName: l, local: {path: /nowhere}, "+fmt.Sprintf(here, "another")),
		ctrdtest.VolumeYAML("here", "1Gi", "storageClassName: l, local: {path: "+local+"}, "+fmt.Sprintf(here, "node")),
		ctrdtest.VolumeYAML("host", "1Gi", "storageClassName: h, hostPath: {path: "+host+"}"),
		ctrdtest.Claim("local", ", storageClassName: l"), ctrdtest.Claim("host", ", storageClassName: h"), ctrdtest.Claim("own", ""),
		ctrdtest.ClaimPod("a", "stat -c '%n %g %a' /local/f /host/f /own; touch /own/x; echo x > /local/f; stat -c %g /own/x; echo end",
			"volumeMounts: [{name: local, mountPath: /local}, {name: host, mountPath: /host}, {name: own, mountPath: /own}]",
			"[{name: local, persistentVolumeClaim: {claimName: local}}, {name: host, persistentVolumeClaim: {claimName: host}}, {name: own, persistentVolumeClaim: {claimName: own}}]",
			"securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 4321}"))
	s.WaitOutput("a", "/local/f 4321 660\n/host/f 0 600\n/own 4321 2777\n4321\nend")
}

const deleting = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: scratch}\nprovisioner: rancher.io/local-path\n%s\n"

// TestADirectoryGoesWithItsClaim checks the reclaim policy Delete, which waits until no pod uses the claim.
func TestADirectoryGoesWithItsClaim(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	defer func() { s.Close() }()
	dir := func(name string) string { return filepath.Join(w.Dir, "root", "volumes", "default", name) }
	exists := func(name string) bool { _, err := os.Stat(dir(name)); return err == nil }
	class, pod := fmt.Sprintf(deleting, "reclaimPolicy: Delete"), ctrdtest.ClaimPod("a", "echo x > /data/x; echo ready", ctrdtest.OnData, ctrdtest.ByData)
	s.Play(class, ctrdtest.Claim("data", ", storageClassName: scratch"), pod, ctrdtest.Claim("kept", ""),
		ctrdtest.ClaimPod("b", "echo ready", ctrdtest.OnData, "[{name: d, persistentVolumeClaim: {claimName: kept}}]"))
	s.WaitOutput("a", "ready")
	s.WaitOutput("b", "ready")
	s.Play(pod)
	ctrdtest.Within(t, 20*time.Second, "the other pod is gone", func() bool { return len(s.Pool.Pods()) == 1 })
	s.Idle(t)
	if !exists("data") {
		t.Fatal("the directory of a running pod was removed")
	}
	s.Play("# nothing")
	ctrdtest.Within(t, 20*time.Second, "the directory is gone", func() bool { return !exists("data") })
	s.Idle(t)
	if !exists("kept") {
		t.Error("a directory was removed whose class does not say so")
	}
	if left := trees.Names(filepath.Join(w.Dir, "root", "volumes", ".removed")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestOnePodAtATime is ReadWriteOncePod.
func TestOnePodAtATime(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	defer func() { s.Close() }()
	alone := strings.Replace(ctrdtest.Claim("data", ""), "ReadWriteOnce]", "ReadWriteOncePod]", 1)
	a, b := ctrdtest.ClaimPod("a", "echo ready", ctrdtest.OnData, ctrdtest.ByData), ctrdtest.ClaimPod("b", "echo ready", ctrdtest.OnData, ctrdtest.ByData)
	s.Play(alone, a)
	s.WaitOutput("a", "ready")
	s.Play(alone, a, b)
	s.Waits("b", "in use by pod default/a")
	s.Play(alone, b)
	s.WaitOutput("b", "ready")
}

const scratch = "[{name: d, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}%s}}}}]"

// TestEphemeralVolumes checks that they outlive containers and the agent, but not the pod, and that a PersistentVolume is free
// again afterwards.
func TestEphemeralVolumes(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	defer func() { s.Close() }()
	disk := filepath.Join(w.Dir, "disk")
	pv := ctrdtest.VolumeYAML("disk", "1Gi", "storageClassName: disks, hostPath: {path: "+disk+"}")
	script := "echo x >> /data/n; echo lines $(wc -l < /data/n)"
	own := ctrdtest.ClaimPod("a", script, ctrdtest.OnData, fmt.Sprintf(scratch, ""))
	bound := func(name string) string {
		return ctrdtest.ClaimPod(name, script, ctrdtest.OnData, fmt.Sprintf(scratch, ", storageClassName: disks"))
	}
	s.Play(own, pv, bound("b"))
	s.WaitOutput("a", "lines 1")
	s.WaitOutput("b", "lines 1")
	uid := s.Index.Sandbox(manifests.Key{Namespace: "default", Name: "a"}).Meta.UID
	s.Play(own, pv, bound("b"), bound("c"))
	s.Waits("c", "disk belongs to claim default/b-d")
	s = w.Again(s, func() {})
	s.Play(own, pv, bound("b"), bound("c"))
	ctrdtest.Check(t, syscall.Kill(int(s.PIDOf("a")), syscall.SIGKILL))
	s.WaitOutput("a", "lines 2")
	s.Play(pv, bound("c"))
	s.WaitOutput("c", "lines 2") // after those of b
	ctrdtest.Within(t, 20*time.Second, "the pod is gone", func() bool { return len(s.Pool.Pods()) == 1 })
	s.Idle(t)
	if _, err := os.Stat(s.Dirs.PodDir(uid)); err == nil {
		t.Error("the directory of the pod is still there")
	}
	s.Play(own, ctrdtest.Claim("a-d", ""))
	s.Waits("a", `PVC "default/a-d" was not created for pod "default/a" (pod is not owner)`)
	s.Play(own)
	s.WaitOutput("a", "lines 1")
}

// TestBlockDevices checks that a claim in mode Block is a device in the container, with its access mode, and that other files are
// refused.
func TestBlockDevices(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	dev := ctrdtest.LoopDevice(t, filepath.Join(w.Dir, "disk.img"))
	defer func() { s.Close() }()
	link := filepath.Join(w.Dir, "by-id")
	ctrdtest.Check(t, os.Symlink(dev, link))
	ctrdtest.Check(t, os.WriteFile(dev, []byte("content of the disk\n"), 0o600))
	here := "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]}}"
	docs := []string{
		ctrdtest.VolumeYAML("disk", "1Gi", "storageClassName: raw, volumeMode: Block, local: {path: "+link+"}, "+here),
		ctrdtest.VolumeYAML("file", "1Gi", "storageClassName: nodev, volumeMode: Block, hostPath: {path: "+w.Dir+"}"),
		ctrdtest.Claim("raw", ", storageClassName: raw, volumeMode: Block"), ctrdtest.Claim("nodev", ", storageClassName: nodev, volumeMode: Block"), ctrdtest.Claim("dir", ""),
	}
	pod := func(name, claim, script, use string, more ...string) string {
		return ctrdtest.ClaimPod(name, script, use, "[{name: d, persistentVolumeClaim: {claimName: "+claim+"}}]", more...)
	}
	const device = "volumeDevices: [{name: d, devicePath: /dev/xvda}]"
	s.Play(append(docs,
		pod("rw", "raw", "head -c 20 /dev/xvda; echo changed | dd of=/dev/xvda conv=notrunc 2>/dev/null && echo written", device),
		pod("dir", "dir", "true", device),
		pod("mounted", "raw", "true", ctrdtest.OnData),
		pod("nodev", "nodev", "true", device))...)
	s.WaitOutput("rw", "content of the disk\nwritten")
	s.Waits("dir", "volume d has volumeMode Filesystem, but is specified in volumeDevices")
	s.Waits("mounted", "volume d has volumeMode Block, but is specified in volumeMounts")
	s.Waits("nodev", "is not a block device")
	s.Play(append(docs, ctrdtest.ClaimPod("ro", "head -c 8 /dev/xvda; echo no > /dev/xvda; echo end; mknod /x b 7 "+strings.TrimPrefix(dev, "/dev/loop")+"; head -c 8 /x; echo no > /x", device,
		"[{name: d, persistentVolumeClaim: {claimName: raw, readOnly: true}}]"),
		pod("priv", "raw", "head -c 8 /dev/xvda; ls /dev/loop-control", device+"\n    securityContext: {privileged: true}"))...)
	s.WaitOutput("ro", "changed\nsh: can't create /dev/xvda: Operation not permitted\nend\nchanged\nsh: can't create /x: Operation not permitted")
	s.WaitOutput("priv", "changed\n/dev/loop-control")
	if got := ctrdtest.Read(t, filepath.Join(w.Dir, "disk.img")); !strings.HasPrefix(got, "changed\nof the disk\n") {
		t.Errorf("the disk holds %q", got[:20])
	}
}

// TestADiskWithAFileSystem has a local volume whose path is a device: an empty device is formatted, and mounted for the pod.
func TestADiskWithAFileSystem(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	dev := ctrdtest.LoopDevice(t, filepath.Join(w.Dir, "disk.img"))
	defer func() { s.Close() }()
	here := "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]}}"
	docs := func(fsType string) []string {
		return []string{ctrdtest.VolumeYAML("disk", "1Gi", "storageClassName: d, mountOptions: [noatime], local: {path: "+dev+fsType+"}, "+here), ctrdtest.Claim("data", ", storageClassName: d")}
	}
	pod := ctrdtest.ClaimPod("a", "grep ' /data ' /proc/mounts; ls /data; cat /data/file; echo kept > /data/file; echo end", ctrdtest.OnData, ctrdtest.ByData)
	s.Play(append(docs(", fsType: ext4"), pod)...)
	s.WaitOutput("a", "lost+found")
	s.WaitOutput("a", "end")
	if out := s.Output("a"); !strings.Contains(out, "ext4 rw,noatime") {
		t.Errorf("it is mounted as %s", out)
	}
	s = w.Again(s, func() {})
	s.Clear()
	if mounts := ctrdtest.Read(t, "/proc/self/mounts"); strings.Contains(mounts, dev+" ") {
		t.Errorf("%s is still mounted: %s", dev, mounts)
	}
	s.Play(append(docs(", fsType: xfs"), pod)...)
	s.Waits("a", "it is not overwritten")
	s.Play(append(docs(""), strings.Replace(pod, "name: a}", "name: b}", 1))...)
	s.WaitOutput("b", "kept\nend")
}

// TestAnUnreadableBookLosesNothing checks that claims find their directories, and objects have the rest.
func TestAnUnreadableBookLosesNothing(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	w.Log = slog.New(slog.DiscardHandler) // it complains
	s := w.Stage(t)
	defer func() { s.Close() }()
	docs := []string{ctrdtest.Claim("data", ""), ctrdtest.ClaimPod("a", "echo x >> /data/n; echo lines $(wc -l < /data/n)", ctrdtest.OnData, ctrdtest.ByData)}
	s.Play(docs...)
	s.WaitOutput("a", "lines 1")
	s.Clear()
	book := filepath.Join(w.Dir, "root", "volumes", "bindings.json")
	s = w.Again(s, func() { ctrdtest.Check(t, os.WriteFile(book, []byte("{"), 0o600)) })
	// A volume that would fit now is not used, because the data are elsewhere.
	s.Play(append(docs, ctrdtest.VolumeYAML("v", "1Gi", "hostPath: {path: "+w.Dir+"/v}"))...)
	s.WaitOutput("a", "lines 2")
}

// TestTheTemplateOfAnEphemeralVolumeChooses: of two volumes the larger one, because of one field each.
func TestTheTemplateOfAnEphemeralVolumeChooses(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	dev := ctrdtest.LoopDevice(t, filepath.Join(w.Dir, "disk.img"))
	ctrdtest.Check(t, os.WriteFile(dev, []byte("block-yes\n"), 0o600))
	defer func() { s.Close() }()
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
			dir := filepath.Join(w.Dir, v.name)
			ctrdtest.Check(t, os.Mkdir(dir, 0o755))
			ctrdtest.Check(t, os.WriteFile(filepath.Join(dir, v.name), nil, 0o600))
			docs = append(docs, "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: "+v.name+", labels: {name: "+v.name+"}}\nspec: {storageClassName: "+c.name+", capacity: {storage: "+v.size+"}, hostPath: {path: "+dir+"}, "+v.modes+"}")
		}
		docs = append(docs, ctrdtest.ClaimPod(c.name, "ls /data", ctrdtest.OnData, "[{name: d, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: "+c.name+", "+c.template+"}}}}]"))
		want = append(want, c.name)
	}
	docs = append(docs,
		ctrdtest.VolumeYAML("block-no", "1Gi", "storageClassName: block, hostPath: {path: /}"), ctrdtest.VolumeYAML("block-yes", "2Gi", "storageClassName: block, volumeMode: Block, hostPath: {path: "+dev+"}"),
		ctrdtest.ClaimPod("block", "head -c 10 /dev/x", "volumeDevices: [{name: d, devicePath: /dev/x}]",
			"[{name: d, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: block, volumeMode: Block, "+modes+", "+size+"}}}}]"))
	s.Play(docs...)
	for _, name := range append(want, "block") {
		s.WaitOutput(name, name+"-yes")
		if out := s.Output(name); strings.Contains(out, name+"-no") {
			t.Errorf("%s got %s", name, out)
		}
	}
}
