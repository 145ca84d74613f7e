package remote

import (
	"context"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/hostarg"
)

const goodIQN = "iqn.2001-04.com.example:disk"

// touch writes a program or file, with its directories.
func touch(t *testing.T, path, text string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(path), 0o700))
	check(t, os.WriteFile(path, []byte(text), 0o700))
}

// TestATypeOfFileSystemIsNoPath offers programs of the machine as types.
func TestATypeOfFileSystemIsNoPath(t *testing.T) {
	dir := t.TempDir()
	mark, disk := filepath.Join(dir, "ran"), filepath.Join(dir, "disk")
	touch(t, filepath.Join(dir, "evil"), "#!/bin/sh\ntouch "+mark+"\n")
	touch(t, disk, strings.Repeat("\x00", 1<<16))
	for _, fsType := range []string{
		"x/../../../../../../../../../.." + dir + "/evil", "../../../.." + dir + "/evil", dir + "/evil", "fuse.x", "EXT4", "ext4/../../x",
	} {
		if err := (Disk{Device: disk, FSType: fsType}).mount(t.Context(), filepath.Join(dir, "at")); err == nil || !strings.Contains(err.Error(), "must be one of bcachefs, btrfs") {
			t.Errorf("%s: %v", fsType, err)
		}
		if err := format(t.Context(), disk, fsType); err == nil || !strings.Contains(err.Error(), "cannot create a file system of type") {
			t.Errorf("%s: %v", fsType, err)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a program of the pod's choice has run")
	}
}

func TestMakersOfFileSystemsAreFixed(t *testing.T) {
	for fsType, m := range makers() {
		if hostarg.FileSystem(fsType) != nil || m.program != "mkfs."+fsType || m.install == "" {
			t.Errorf("%s: %+v", fsType, m)
		}
	}
	for _, fsType := range []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "vfat"} {
		if _, ok := makers()[fsType]; !ok {
			t.Errorf("no maker of %s", fsType)
		}
	}
}

func TestADeviceOrMountOptionIsNoOption(t *testing.T) {
	for _, d := range []Disk{{Device: "--help"}, {Device: "disk"}, {Device: "/dev/x", Options: []string{"noatime", "-o"}}, {Device: "/dev/x", Options: []string{"a\nb"}}} {
		if err := d.check(); err == nil {
			t.Errorf("%+v is accepted", d)
		}
	}
	check(t, Disk{Device: "/dev/x", FSType: "xfs", Options: []string{"noatime"}}.check())
}

// fakeTool puts a program into the PATH that writes its arguments to the returned file.
func fakeTool(t *testing.T, name string) (log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	touch(t, filepath.Join(dir, name), "#!/bin/sh\necho \"$@\" >> "+log+"\n")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return log
}

// TestNamesThatArePathsNeverReachATool, nor are they recorded, so that nothing is logged out either.
func TestNamesThatArePathsNeverReachATool(t *testing.T) {
	log, nfsLog := fakeTool(t, "iscsiadm"), fakeTool(t, "mount.nfs")
	m := NewMounter(func() {})
	defer m.Close()
	pod := filepath.Join(t.TempDir(), "uid")
	bad := "-x/../y"
	for name, change := range map[string]func(*LUN){
		"targetPortal":   func(l *LUN) { l.Source.TargetPortal = "*:3260" },
		"portals":        func(l *LUN) { l.Source.Portals = []string{"ok", "a/../b"} },
		"iqn":            func(l *LUN) { l.Source.IQN = "iqn.2001-04.com.example:a/../../../x" },
		"iscsiInterface": func(l *LUN) { l.Source.ISCSIInterface = "../../cron.d/x" },
		"initiatorName":  func(l *LUN) { l.Source.InitiatorName = &bad },
		"interface and initiator": func(l *LUN) {
			l.Source.ISCSIInterface, l.Source.InitiatorName = bad, new(goodIQN)
		},
		"secret": func(l *LUN) {
			l.Secret = map[string][]byte{"node.session.auth.username": []byte("a\nnode.startup = automatic")}
		},
	} {
		l := LUN{Source: &corev1.ISCSIVolumeSource{TargetPortal: "192.0.2.7", IQN: goodIQN}, Volume: "v"}
		change(&l)
		if _, err := m.ISCSI(pod, l); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for _, s := range []corev1.NFSVolumeSource{{Server: "-V", Path: "/x"}, {Server: "s", Path: "/x\ny"}} {
		if err := m.NFS(Target(pod, "nfs", "v"), &s, false, nil); err == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
	if err := m.NFS(Target(pod, "nfs", "v"), &corev1.NFSVolumeSource{Server: "s", Path: "/x"}, false, []string{"-x"}); err == nil {
		t.Error("an option of mount.nfs is accepted")
	}
	if left := sessions(pod); len(left) > 0 {
		t.Errorf("recorded: %v", left)
	}
	for _, log := range []string{log, nfsLog} {
		if text, err := os.ReadFile(log); err == nil {
			t.Errorf("called with %s", text)
		}
	}
}

// TestASessionOfAnOlderReleaseWithABadName is forgotten; the others are logged out.
func TestASessionOfAnOlderReleaseWithABadName(t *testing.T) {
	log := fakeTool(t, "iscsiadm")
	m := NewMounter(func() {})
	defer m.Close()
	pod := filepath.Join(t.TempDir(), "uid")
	check(t, session{Portals: []string{"*:3260"}, IQN: "iqn.2001-04.com.example:a/../x", Iface: "default"}.write(filepath.Join(pod, sessionDir, "bad")))
	check(t, session{Portals: []string{"192.0.2.7:3260"}, IQN: goodIQN, Iface: "192.0.2.7:3260:v", Own: true}.write(filepath.Join(pod, sessionDir, "good")))
	check(t, m.Logout(pod))
	if left := sessions(pod); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	const node = "-m node -p 192.0.2.7:3260 -T " + goodIQN + " -I 192.0.2.7:3260:v "
	if text, err := os.ReadFile(log); err != nil || string(text) != node+"--logout\n"+node+"-o delete\n-m iface -I 192.0.2.7:3260:v -o delete\n" {
		t.Errorf("called: %s (%v)", text, err)
	}
}

// hostWith returns the disks of a machine with a session of a neighbor: sda is its LUN 1, dm-0 joins the paths to it.
func hostWith(t *testing.T, link, portal string) disks {
	t.Helper()
	dir := t.TempDir()
	d := disks{dev: filepath.Join(dir, "dev"), sys: filepath.Join(dir, "sys"), lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
		if host == "nas" {
			return []netip.Addr{netip.MustParseAddr("192.0.2.7")}, nil
		}
		return nil, os.ErrNotExist
	}}
	touch(t, filepath.Join(d.dev, "sda"), "")
	if link != "" {
		at := filepath.Join(d.dev, "disk", "by-path", link)
		check(t, os.MkdirAll(filepath.Dir(at), 0o700))
		check(t, os.Symlink("../../sda", at))
	}
	address, port, _ := strings.Cut(portal, " ")
	session := filepath.Join(d.sys, "class", "iscsi_session", "session1")
	for name, text := range map[string]string{
		"targetname": goodIQN + "\n",
		"device/connection1:0/iscsi_connection/connection1:0/address":            "10.9.9.9\n", // where it was redirected to
		"device/connection1:0/iscsi_connection/connection1:0/port":               port + "\n",
		"device/connection1:0/iscsi_connection/connection1:0/persistent_address": address + "\n",
		"device/connection1:0/iscsi_connection/connection1:0/persistent_port":    port + "\n",
		"device/target6:0:0/6:0:0:0/power/x":                                     "",
		"device/target6:0:0/6:0:0:1/block/sda/x":                                 "",
		"device/target6:0:0/6:0:0:11/block/sdb/x":                                "",
	} {
		touch(t, filepath.Join(session, filepath.FromSlash(name)), text)
	}
	touch(t, filepath.Join(d.sys, "class", "block", "sda", "holders", "dm-0", "x"), "")
	return d
}

// TestOnlyTheDiskOfTheNamedSessionIsFound, not that of a neighbor whose name or portal differs.
func TestOnlyTheDiskOfTheNamedSessionIsFound(t *testing.T) {
	const udev = "ip-192.0.2.7:3260-iscsi-" + goodIQN + "-lun-1"
	for name, tt := range map[string]struct {
		link, session, portal, iqn string
		lun                        int32
		found                      bool
	}{
		"by link":                         {link: udev, session: "x x", portal: "192.0.2.7:3260", iqn: goodIQN, lun: 1, found: true},
		"by link of a card":               {link: "pci-0000:05:00.0-" + udev, session: "x x", portal: "192.0.2.7:3260", iqn: goodIQN, lun: 1, found: true},
		"a link of another target":        {link: "ip-1.1.1.1:1-iscsi-iqn.2001-04.com.example:x-" + udev, session: "x x", portal: "192.0.2.7:3260", iqn: goodIQN, lun: 1},
		"any portal":                      {link: udev, session: "x x", portal: "*:3260", iqn: goodIQN, lun: 1},
		"any target":                      {link: udev, session: "x x", portal: "192.0.2.7:3260", iqn: "iqn.2001-04.com.example:*", lun: 1},
		"a path":                          {link: udev, session: "x x", portal: "192.0.2.7:3260", iqn: "a/../ip-192.0.2.7:3260-iscsi-" + goodIQN, lun: 1},
		"a partition":                     {link: udev + "-part1", session: "x x", portal: "192.0.2.7:3260", iqn: goodIQN, lun: 1},
		"by session":                      {session: "192.0.2.7 3260", portal: "192.0.2.7:3260", iqn: goodIQN, lun: 1, found: true},
		"by session of a name":            {session: "192.0.2.7 3260", portal: "nas:3260", iqn: goodIQN, lun: 1, found: true},
		"by session with the name":        {session: "Nas2 3260", portal: "nas2:3260", iqn: goodIQN, lun: 1, found: true},
		"by session, IPv6":                {session: "fd00:0::1 3260", portal: "[fd00::1]:3260", iqn: goodIQN, lun: 1, found: true},
		"redirected":                      {session: "10.9.9.8 3260", portal: "10.9.9.9:3260", iqn: goodIQN, lun: 1, found: true},
		"a session with another portal":   {session: "192.0.2.7 3260", portal: "192.0.2.8:3260", iqn: goodIQN, lun: 1},
		"a session with another port":     {session: "192.0.2.7 3260", portal: "192.0.2.7:3261", iqn: goodIQN, lun: 1},
		"a session with another name":     {session: "192.0.2.7 3260", portal: "other:3260", iqn: goodIQN, lun: 1},
		"a session with another target":   {session: "192.0.2.7 3260", portal: "192.0.2.7:3260", iqn: goodIQN + "s", lun: 1},
		"a session without such a disk":   {session: "192.0.2.7 3260", portal: "192.0.2.7:3260", iqn: goodIQN, lun: 2},
		"a session with an unused number": {session: "192.0.2.7 3260", portal: "192.0.2.7:3260", iqn: goodIQN, lun: 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := hostWith(t, tt.link, tt.session)
			want := ""
			if tt.found {
				want = filepath.Join(d.dev, "sda")
			}
			if got := d.find(t.Context(), tt.portal, tt.iqn, tt.lun); got != want {
				t.Errorf("found %q, want %q", got, want)
			}
		})
	}
}

func TestMultipath(t *testing.T) {
	d := hostWith(t, "", "x x")
	if got := d.multipath("/dev/sda"); got != filepath.Join(d.dev, "dm-0") {
		t.Error(got)
	}
	if got := d.multipath("/dev/sd*"); got != "/dev/sd*" {
		t.Error(got)
	}
}

// TestALoginIsGivenWithoutItsLineFeed, with which many Secrets are made.
func TestALoginIsGivenWithoutItsLineFeed(t *testing.T) {
	c := client{lun: &LUN{Secret: map[string][]byte{"p.username": []byte("me\n"), "p.password": []byte("-x\r\n"), "p.username_in": []byte("\n")}}}
	steps := c.chap([]string{"-m", "node"}, "p.")
	var last []string
	for _, s := range steps {
		last = append(last, s[len(s)-1])
	}
	if want := []string{"CHAP", "me", "-x"}; !slices.Equal(last, want) {
		t.Errorf("%q, want %q", last, want)
	}
	l := LUN{Source: &corev1.ISCSIVolumeSource{TargetPortal: "h", IQN: goodIQN}, Secret: maps.Clone(c.lun.Secret)}
	check(t, l.check(l.session()))
}
