//go:build e2e

package remote_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monopod/e2e/ctrdtest"
	"monopod/manifests"
	"monopod/runner/ctrd/remote"
)

// program puts a shell script into the PATH in place of a host tool: the kernels of the tests lack NFS and iSCSI. $DIR is a
// directory of the test; the file log in it has the arguments of all calls.
func program(t *testing.T, name, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	text := "#!/bin/sh\nDIR=" + dir + "\necho \"$@\" >> $DIR/log\n" + script
	ctrdtest.Check(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
	ctrdtest.Check(t, os.WriteFile(filepath.Join(dir, "bin", name), []byte(text), 0o755))
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	return dir
}

// calls are the lines of the log with a text.
func calls(t *testing.T, dir, text string) []string {
	t.Helper()
	var found []string
	data, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// hanging is a command line that no other process has.
var hanging = fmt.Sprintf("sleep 300.%d", os.Getpid())

// fakeNFS mounts directories of $DIR/exports. It blocks while the file hang exists, and fails while deny exists.
var fakeNFS = `
[ -e $DIR/hang ] && exec ` + hanging + `
[ -e $DIR/deny ] && echo "mount.nfs: access denied by server" >&2 && exit 32
case "$*" in *"-o "*ro*) ro="-o bind,ro";; esac
exec mount --bind $ro $DIR/exports${1##*:} $2
`

func nfsPod(name, script, source string) string {
	return ctrdtest.ClaimPod(name, script, ctrdtest.OnData, "[{name: d, nfs: {server: nas, "+source+"}}]")
}

// TestNFS checks that an export is mounted once for a pod, across restarts of its containers and the agent, and unmounted with it.
func TestNFS(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	dir := program(t, "mount.nfs", fakeNFS)
	export := filepath.Join(dir, "exports", "srv")
	ctrdtest.Check(t, os.MkdirAll(export, 0o777))
	ctrdtest.Check(t, os.WriteFile(filepath.Join(dir, "deny"), nil, 0o600))
	s := w.Stage(t)
	defer func() { s.Close() }()
	docs := []string{
		nfsPod("a", "echo x >> /data/n; echo lines $(wc -l < /data/n)", "path: /srv"),
		nfsPod("ro", "touch /data/new; echo end", "path: /srv, readOnly: true"),
		ctrdtest.VolumeYAML("share", "1Gi", "storageClassName: nas, mountOptions: [nfsvers=4.1, hard], nfs: {server: 'fd00::1', path: /srv}"),
		ctrdtest.Claim("share", ", storageClassName: nas"),
		ctrdtest.ClaimPod("c", "ls -d /data; echo end", "volumeMounts: [{name: d, mountPath: /data}, {name: d, mountPath: /sub, subPath: sub/dir}]",
			"[{name: d, persistentVolumeClaim: {claimName: share, readOnly: false}}]"),
	}
	s.Play(docs...)
	s.Waits("a", "mount.nfs: exit status 32: mount.nfs: access denied by server")
	ctrdtest.Check(t, os.Remove(filepath.Join(dir, "deny")))
	s.WaitOutput("a", "lines 1")
	s.WaitOutput("ro", "touch: /data/new: Read-only file system\nend")
	s.WaitOutput("c", "/data\nend")
	if _, err := os.Stat(filepath.Join(export, "sub", "dir")); err != nil {
		t.Error(err)
	}
	target := func(name string) string {
		return filepath.Join(s.Dirs.PodDir(s.Index.Sandbox(manifests.Key{Namespace: "default", Name: name}).Meta.UID), "volumes", "kubernetes.io~nfs", "d")
	}
	for name, want := range map[string]string{"a": "nas:/srv " + target("a"), "ro": "nas:/srv " + target("ro") + " -o ro", "c": "[fd00::1]:/srv " + target("c") + " -o nfsvers=4.1,hard"} {
		if got := calls(t, dir, target(name)); len(got) == 0 || got[len(got)-1] != want {
			t.Errorf("%s: called %q, want %q", name, got, want)
		}
	}
	before := len(calls(t, dir, ""))
	s = w.Again(s, func() {})
	s.Play(docs...)
	ctrdtest.Check(t, syscall.Kill(int(s.PIDOf("a")), syscall.SIGKILL))
	s.WaitOutput("a", "lines 2")
	if now := len(calls(t, dir, "")); now != before {
		t.Errorf("mounted again: %q", calls(t, dir, ""))
	}
	s.Clear()
	if mounts := ctrdtest.Read(t, "/proc/self/mountinfo"); strings.Contains(mounts, "kubernetes.io~nfs") {
		t.Errorf("still mounted: %s", mounts)
	}
	if got := ctrdtest.Read(t, filepath.Join(export, "n")); got != "x\nx\n" {
		t.Errorf("the export holds %q", got)
	}
}

// TestAHangingServerIsNobodyElsesTrouble has more pods waiting for a server than may start in parallel; other pods start, and the
// waiting ones can be removed.
func TestAHangingServerIsNobodyElsesTrouble(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	dir := program(t, "mount.nfs", fakeNFS)
	ctrdtest.Check(t, os.MkdirAll(filepath.Join(dir, "exports", "srv"), 0o777))
	hang := filepath.Join(dir, "hang")
	ctrdtest.Check(t, os.WriteFile(hang, nil, 0o600))
	s := w.Stage(t)
	defer func() { s.Close() }()
	var docs []string
	for i := range 6 {
		docs = append(docs, nfsPod(fmt.Sprintf("n%d", i), "echo ready", "path: /srv"))
	}
	s.Play(docs...)
	for i := range 6 {
		s.Waits(fmt.Sprintf("n%d", i), "mount nas:/srv: no answer after")
	}
	began := time.Now()
	s.Play(append(docs, ctrdtest.ClaimPod("plain", "echo ready", "env: []", "[]"))...)
	s.WaitOutput("plain", "ready")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("a pod that has nothing to do with it took %s to start", took)
	}
	ctrdtest.Check(t, os.Remove(hang))
	s.Play(ctrdtest.ClaimPod("plain", "echo ready", "env: []", "[]"), nfsPod("late", "echo ready", "path: /srv"))
	s.WaitOutput("late", "ready")
	ctrdtest.Within(t, 20*time.Second, "the others are gone", func() bool { return len(s.Index.List()) == 2 })
	s.Idle(t)
	if left := calls(t, dir, "nas:/srv"); len(left) != 7 {
		t.Errorf("%d calls: %q", len(left), left)
	}
	out, _ := exec.Command("pgrep", "-xf", hanging).Output()
	if len(out) > 0 {
		t.Errorf("a mount.nfs is left: %s", out)
	}
}

// TestAPodIsMadeAnewAlthoughItsServerIsDead has a mount for the old sandbox that cannot be accessed.
func TestAPodIsMadeAnewAlthoughItsServerIsDead(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	dir := program(t, "mount.nfs", fakeNFS)
	ctrdtest.Check(t, os.MkdirAll(filepath.Join(dir, "exports", "srv"), 0o777))
	s := w.Stage(t)
	defer func() { s.Close() }()
	pod := func(word string) string {
		return strings.Replace(nfsPod("a", "echo "+word, "path: /srv"), "hostNetwork: true", "hostNetwork: true\n  hostname: "+word, 1)
	}
	s.Play(pod("one"))
	s.WaitOutput("a", "one")
	key := manifests.Key{Namespace: "default", Name: "a"}
	old := s.Dirs.PodDir(s.Index.Sandbox(key).Meta.UID)
	target := remote.Target(old, "nfs", "d")
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	ctrdtest.Check(t, err)
	ctrdtest.Check(t, unix.Mount("fuse", target, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())))
	defer func() { _ = server.Close() }() // which would end the wait of who looks at it
	began := time.Now()
	s.Play(pod("two"))
	s.WaitOutput("a", "two")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	if now := s.Dirs.PodDir(s.Index.Sandbox(key).Meta.UID); now == old {
		t.Error("it is the old pod: this shows nothing")
	}
	s.Clear()
	if mounts := ctrdtest.Read(t, "/proc/self/mountinfo"); strings.Contains(mounts, "kubernetes.io~nfs") {
		t.Errorf("still mounted: %s", mounts)
	}
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the old pod is there: %v", err)
	}
}

const (
	testIQN    = "iqn.2001-04.com.example:disk-%d"
	chapSecret = "apiVersion: v1\nkind: Secret\nmetadata: {name: chap}\ntype: kubernetes.io/iscsi-chap\nstringData: {discovery.sendtargets.auth.username: finder, node.session.auth.username: me, node.session.auth.password: pass}\n"
)

// fakeISCSI creates and removes the links of udev. $DIR/device is the disk; while the file deny exists, discovery fails.
const fakeISCSI = `
link="/dev/disk/by-path/ip-$4-iscsi-$6-lun-1"
case "$*" in
*"-o show") printf 'iface.iscsi_ifacename = default\niface.net_ifacename = eth7\niface.transport_name = tcp\niface.initiatorname = <empty>\n';;
*--discover) [ -e $DIR/deny ] && echo "iscsiadm: cannot make connection" >&2 && exit 4;;
*--login) mkdir -p /dev/disk/by-path; [ -e "$link" ] && exit 15; ln -s $(cat $DIR/device) "$link";;
*--logout) [ -e "$link" ] || exit 21; rm "$link";;
esac
exit 0
`

// TestISCSI logs in to portals with CHAP and an initiator name of the pod, mounts the disk or passes the device, and logs out with
// the last pod.
func TestISCSI(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	dir := program(t, "iscsiadm", fakeISCSI)
	s := w.Stage(t)
	dev := ctrdtest.LoopDevice(t, filepath.Join(w.Dir, "disk.img"))
	defer func() { s.Close() }()
	ctrdtest.Check(t, os.WriteFile(filepath.Join(dir, "device"), []byte(dev), 0o600))
	ctrdtest.Check(t, os.WriteFile(filepath.Join(dir, "deny"), nil, 0o600))
	iqn := fmt.Sprintf(testIQN, os.Getpid())
	source := "iscsi: {targetPortal: 192.0.2.7, portals: ['192.0.2.8:3261'], iqn: '" + iqn + "', lun: 1, fsType: ext3, iscsiInterface: eth, " +
		"initiatorName: 'iqn.2001-04.com.example:me', chapAuthDiscovery: true, chapAuthSession: true, secretRef: {name: chap}%s}"
	a := ctrdtest.ClaimPod("a", "grep ' /data ' /proc/mounts; ls -ld /data | cut -c 1-10; echo x >> /data/n; echo lines $(wc -l < /data/n)", ctrdtest.OnData, "[{name: d, "+fmt.Sprintf(source, "")+"}]", "securityContext: {fsGroup: 4321}")
	b := ctrdtest.ClaimPod("b", "cat /data/n; touch /data/new; echo end", ctrdtest.OnData, "[{name: d, "+fmt.Sprintf(source, ", readOnly: true")+"}]")
	s.Play(a)
	s.Waits("a", `secret "chap" not found`)
	s.Play(a, chapSecret)
	s.Waits("a", "portal 192.0.2.7:3260: iscsiadm: exit status 4: iscsiadm: cannot make connection")
	ctrdtest.Check(t, os.Remove(filepath.Join(dir, "deny")))
	s.WaitOutput("a", " ext3 rw")
	s.WaitOutput("a", "drwxrwsr-x")
	s.WaitOutput("a", "lines 1")
	iface := "192.0.2.7:3260:d"
	node := "-m node -p 192.0.2.7:3260 -T " + iqn + " -I " + iface
	for _, want := range []string{
		"-m iface -I eth -o show", "-m iface -I " + iface + " -o update -n iface.initiatorname -v iqn.2001-04.com.example:me", "-m iface -I " + iface + " -o update -n iface.net_ifacename -v eth7",
		"-m discoverydb -t sendtargets -p 192.0.2.7:3260 -I " + iface + " -o update -n discovery.sendtargets.auth.authmethod -v CHAP",
		"-m discoverydb -t sendtargets -p 192.0.2.7:3260 -I " + iface + " -o update -n discovery.sendtargets.auth.username -v finder",
		node + " -o update -n node.session.auth.authmethod -v CHAP", node + " -o update -n node.session.auth.password -v pass",
		node + " -o update -n node.startup -v manual", node + " --login", "-m node -p 192.0.2.8:3261 -T " + iqn + " -I " + iface + " --login",
	} {
		if len(calls(t, dir, want)) == 0 {
			t.Errorf("never called: %s", want)
		}
	}
	s = w.Again(s, func() {})
	s.Play(a, b, chapSecret)
	s.WaitOutput("b", "x\ntouch: /data/new: Read-only file system\nend")
	ctrdtest.Check(t, syscall.Kill(int(s.PIDOf("a")), syscall.SIGKILL))
	s.WaitOutput("a", "lines 2")
	if got := calls(t, dir, node+" --login"); len(got) != 1 {
		t.Errorf("logged in %d times", len(got))
	}
	s.Play(b, chapSecret)
	ctrdtest.Within(t, 20*time.Second, "the first pod is gone", func() bool { return len(s.Index.List()) == 1 })
	s.Idle(t)
	if got := calls(t, dir, "--logout"); len(got) != 0 {
		t.Errorf("logged out although another pod has the disk: %q", got)
	}
	s.Clear()
	for _, portal := range []string{"192.0.2.7:3260", "192.0.2.8:3261"} {
		if _, err := os.Lstat("/dev/disk/by-path/ip-" + portal + "-iscsi-" + iqn + "-lun-1"); err == nil {
			t.Errorf("still logged in at %s", portal)
		}
	}
	if got := calls(t, dir, "-m iface -I "+iface+" -o delete"); len(got) != 1 {
		t.Errorf("the interface is left: %q", calls(t, dir, "iface"))
	}
}

// TestAnISCSIVolumeCanBeADevice, with the login in another namespace.
func TestAnISCSIVolumeCanBeADevice(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	dir := program(t, "iscsiadm", fakeISCSI)
	s := w.Stage(t)
	dev := ctrdtest.LoopDevice(t, filepath.Join(w.Dir, "disk.img"))
	defer func() { s.Close() }()
	ctrdtest.Check(t, os.WriteFile(filepath.Join(dir, "device"), []byte(dev), 0o600))
	ctrdtest.Check(t, os.WriteFile(dev, []byte("raw content\n"), 0o600))
	iqn := fmt.Sprintf(testIQN, os.Getpid()) + "-raw"
	s.Play(strings.Replace(chapSecret, "{name: chap}", "{name: chap, namespace: storage}", 1),
		ctrdtest.VolumeYAML("raw", "1Gi", "volumeMode: Block, storageClassName: raw, iscsi: {targetPortal: 192.0.2.7, iqn: '"+iqn+"', lun: 1, chapAuthSession: true, secretRef: {name: chap, namespace: storage}}"),
		ctrdtest.Claim("raw", ", storageClassName: raw, volumeMode: Block"),
		ctrdtest.ClaimPod("a", "head -c 12 /dev/x", "volumeDevices: [{name: d, devicePath: /dev/x}]", "[{name: d, persistentVolumeClaim: {claimName: raw}}]"))
	s.WaitOutput("a", "raw content")
	s.Clear()
	if got := calls(t, dir, "--logout"); len(got) != 1 {
		t.Errorf("logouts: %q", got)
	}
	if err := filepath.WalkDir(s.Dirs.PodsDir(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("left: %s", path)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestToolsThatAreMissingAreNamed, with the packages that have them.
func TestToolsThatAreMissingAreNamed(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	// Only what the host has, without the directories that are searched besides the PATH.
	for _, name := range []string{"mount.nfs", "iscsiadm"} {
		if path, err := exec.LookPath(name); err == nil {
			t.Fatalf("this test is for machines without %s", path)
		}
	}
	s := w.Stage(t)
	defer func() { s.Close() }()
	s.Play(nfsPod("a", "true", "path: /srv"), ctrdtest.ClaimPod("b", "true", ctrdtest.OnData, "[{name: d, iscsi: {targetPortal: t, iqn: 'iqn.2001-04.com.example:x', lun: 0}}]"))
	s.Waits("a", "mount.nfs is not on this machine: install nfs-common (Debian, Ubuntu)")
	s.Waits("b", "iscsiadm is not on this machine: install open-iscsi (Debian, Ubuntu")
}
