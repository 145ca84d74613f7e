package runcdelete

import (
	"strings"
	"testing"
)

func TestWhichCommandsDeleteAStoppedContainer(t *testing.T) {
	for _, tt := range []struct{ name, args, root, id string }{
		{"as the shim has it", "/usr/sbin/runc --root /run/m/runc/ns --log /b/log.json --log-format json delete c1", "/run/m/runc/ns", "c1"},
		{"without a log", "runc --root /r delete a.b_c+d-E9", "/r", "a.b_c+d-E9"},
		{"killing it first", "runc --root /r delete --force c1", "", ""},
		{"another command", "runc --root /r kill c1", "", ""},
		{"another command with that argument", "runc --root /r exec delete c1", "", ""},
		{"another program", "/usr/bin/crun --root /r delete c1", "", ""},
		{"systemd's cgroups", "runc --root /r --systemd-cgroup delete c1", "", ""},
		{"an unknown option", "runc --root /r --criu x delete c1", "", ""},
		{"the default root", "runc delete c1", "", ""},
		{"a relative root", "runc --root r delete c1", "", ""},
		{"a path as an id", "runc --root /r delete ../c1", "", ""},
		{"the directory itself as an id", "runc --root /r delete .", "", ""},
		{"the directory above as an id", "runc --root /r delete ..", "", ""},
		{"a lone word", "delete", "", ""},
		{"no program", "delete c1", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root, id, ok := parse(strings.Fields(tt.args))
			if ok != (tt.id != "") || ok && (root != tt.root || id != tt.id) {
				t.Errorf("got %q, %q, %v", root, id, ok)
			}
		})
	}
	if _, _, ok := parse([]string{"runc", "--root", "/r", "delete", ""}); ok {
		t.Error("the whole root would be deleted")
	}
}
