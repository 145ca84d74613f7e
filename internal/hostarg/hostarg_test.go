package hostarg

import (
	"slices"
	"strings"
	"testing"
)

func checks() map[string]struct {
	check     func(string) error
	good, bad []string
} {
	return map[string]struct {
		check     func(string) error
		good, bad []string
	}{
		"file system": {
			FileSystem,
			[]string{"ext2", "ext3", "ext4", "xfs", "btrfs", "vfat"},
			[]string{"", "ext5", "EXT4", "x/../../../../tmp/x", "fuse.sshfs", "ext4 ", "ext4\n", "overlay", "tmpfs"},
		},
		"host": {
			host,
			[]string{"nas", "nas.example.com.", "Nas_1", "192.0.2.7", "fd00::1", "[fd00::1]", "fe80::1%eth0.7", "[fe80::1%eth0]"},
			[]string{"", "-v", ".x", "a b", "a:b", "*", "[nas]", "[192.0.2.7]", "[fd00::1", "fe80::1%*", "fe80::1%a/b", "nas,nas2", strings.Repeat("x", 256)},
		},
		"portal": {
			Portal,
			[]string{"nas", "nas:3260", "192.0.2.7", "192.0.2.7:860", "fd00::1", "[fd00::1]", "[fd00::1]:3260", "[fe80::1%eth0]:1"},
			[]string{"", "*:3260", "*", "?", "nas:", "nas:0", "nas:65536", "nas:x", "nas:+1", "nas:3260,1", ":3260", "[192.0.2.7]:1", "[nas]:1", "a/../b:1", "-p:1", "[fe80::1%*]:1"},
		},
		"target": {
			TargetName,
			[]string{
				"iqn.2001-04.com.example:disk", "iqn.2004-04.com.qnap:ts-459:iscsi.foo_1.c3bb5f", "eui.0123456789abcdef", "naa.0123456789ABCDEF",
				"naa.0123456789abcdef0123456789abcdef", "iqn.2001-04.com.example:größe",
			},
			[]string{
				"", "abc", "iqn.x", "iqn/../x iqn.2001-04.com.example:disk", "iqn.2001-04.com.example:*", "iqn.2001-04.com.example:a/../../../../etc/x", "iqn.2001-04.com.example:d?sk",
				"iqn.2001-04.com.example:[a]", "iqn.2001-04.com.example:a\nb", "iqn.2001-04.com.example:", "iqn.2001-04.com.example", "eui.*/../../../sda/..", "naa.0123456789abcde/",
			},
		},
		"interface": {
			ISCSIInterface,
			[]string{"default", "eth0", "qla4xxx.00:c0:dd:08:63:e8.ipv4.0", "bnx2i.00:10", "my_iface"},
			[]string{"", "-x", "..", "../../cron.d/x", "a b", "*"},
		},
		"text": {
			Text,
			[]string{"", "nfsvers=4.1", "hard,intr", `context="system_u:object_r:x:s0"`, "/srv/a b"},
			[]string{"-o", "--help", "a\nb", "a\x00b"},
		},
	}
}

func TestChecks(t *testing.T) {
	for name, c := range checks() {
		for _, s := range c.good {
			if err := c.check(s); err != nil {
				t.Errorf("%s %q: %v", name, s, err)
			}
		}
		for _, s := range c.bad {
			if c.check(s) == nil {
				t.Errorf("%s %q is accepted", name, s)
			}
		}
	}
}

// TestNoNameIsAPathAPatternOrAnOption puts what is special in paths, patterns, lines and command lines into good names.
func TestNoNameIsAPathAPatternOrAnOption(t *testing.T) {
	for name, c := range checks() {
		if name == "text" {
			continue
		}
		for _, s := range c.good {
			if c.check("-"+s) == nil || c.check("."+s) == nil {
				t.Errorf("%s: accepted with '-' or '.' in front of %q", name, s)
			}
			for _, special := range []string{"/", "*", "?", `\`, " ", "\n", "\x00", ",", ";", "|", "$", `"`, "'", "(", "{"} {
				for i := range len(s) + 1 {
					if text := s[:i] + special + s[i:]; c.check(text) == nil {
						t.Errorf("%s %q is accepted", name, text)
					}
				}
			}
		}
	}
}

func TestFileSystemsAreSortedOnce(t *testing.T) {
	all := FileSystems()
	if !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Error(all)
	}
}
