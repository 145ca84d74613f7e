package runcdelete

import (
	"slices"
	"strings"
	"testing"
)

// States of a container c1 as runc writes them, without irrelevant parts of the configuration.
const (
	written11 = `{"id":"c1","init_process_pid":4711,"init_process_start":2860316,"created":"2026-11-23T01:14:48.443561192Z",` +
		`"config":{"no_pivot_root":false,"rootfs":"/b/rootfs","namespaces":[{"type":"NEWNET","path":"/run/netns/a"},{"type":"NEWPID","path":""},{"type":"NEWNS","path":""}],` +
		`"cgroups":{"path":"/pods/p/c1","scope_prefix":"","memory":0,"Systemd":false,"Rootless":false},` +
		`"Hooks":{"createContainer":null,"createRuntime":null,"poststart":null,"poststop":null,"prestart":[{"path":"/bin/true"}],"startContainer":null},"version":"1.0.2-dev"},` +
		`"rootless":false,"cgroup_paths":{"":"/sys/fs/cgroup/unified/pods/p/c1","cpu":"/sys/fs/cgroup/cpu,cpuacct/pods/p/c1","cpuacct":"/sys/fs/cgroup/cpu,cpuacct/pods/p/c1"},` +
		`"namespace_paths":{"NEWPID":"/proc/4711/ns/pid"},"external_descriptors":["/dev/null","pipe:[1]","pipe:[2]"],"intel_rdt_path":""}`
	written15 = `{"id":"c1","init_process_pid":4711,"init_process_start":2860316,"created":"2026-11-23T01:14:48.7Z",` +
		`"config":{"rootfs":"/b/rootfs","namespaces":[{"type":"NEWPID"},{"type":"NEWNS"}],"cgroups":{"path":"/pods/p/c1"},"Hooks":null,"version":"1.3.0"},` +
		`"cgroup_paths":{"":"/sys/fs/cgroup/pods/p/c1"},"namespace_paths":{"NEWPID":"/proc/4711/ns/pid"},"external_descriptors":["/dev/null","/a","/b"]}`
)

func TestWhatIsDeleted(t *testing.T) {
	for _, tt := range []struct {
		name, state string
		cgroups     []string
	}{
		{"runc 1.1, several hierarchies", written11, []string{"/sys/fs/cgroup/cpu,cpuacct/pods/p/c1", "/sys/fs/cgroup/unified/pods/p/c1"}},
		{"runc 1.5, one hierarchy", written15, []string{"/sys/fs/cgroup/pods/p/c1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := newPlan("c1", []byte(tt.state))
			if err != nil || p.pid != 4711 || p.startTime != 2860316 || !slices.Equal(p.cgroups, tt.cgroups) {
				t.Errorf("got %+v, %v", p, err)
			}
		})
	}
}

func TestWhatIsLeftToRunc(t *testing.T) {
	for _, tt := range []struct{ name, from, to string }{
		{"nothing was written", written15, ""},
		{"written in part", `"namespace_paths"`, "\x00"},
		{"not an object", written15, "[]"},
		{"empty", written15, "{}"},
		{"null", written15, "null"},
		{"of another container", `"id":"c1"`, `"id":"c2"`},
		{"a field that a newer runc may need", `"created"`, `"net_devices":["eth0"],"created"`},
		{"a field with an unexpected value", `"init_process_pid":4711`, `"init_process_pid":"4711"`},
		{"no process", `"init_process_pid":4711`, `"init_process_pid":0`},
		{"no start time", `"init_process_start":2860316,`, ``},
		{"no namespace of processes", `{"type":"NEWPID"},`, ``},
		{"the namespace of other processes", `{"type":"NEWPID"}`, `{"type":"NEWPID","path":"/proc/1/ns/pid"}`},
		{"cgroups of systemd", `"cgroups":{`, `"cgroups":{"Systemd":true,`},
		{"rootless", `"created"`, `"rootless":true,"created"`},
		{"a rootless user", `"rootfs"`, `"rootless_euid":true,"rootfs"`},
		{"rootless cgroups", `"rootfs"`, `"rootless_cgroups":true,"rootfs"`},
		{"hooks to run", `"Hooks":null`, `"Hooks":{"poststop":[{"path":"/bin/true"}]}`},
		{"intelRdt is configured", `"rootfs"`, `"intel_rdt":{},"rootfs"`},
		{"intelRdt is in use", `"created"`, `"intel_rdt_path":"/sys/fs/resctrl/c1","created"`},
		{"intelRdt is watched", `"created"`, `"intel_rdt_mon_path":"/sys/fs/resctrl/c1","created"`},
		{"no cgroups", `{"":"/sys/fs/cgroup/pods/p/c1"}`, `{}`},
		{"a cgroup at another place", `"/sys/fs/cgroup/pods/p/c1"`, `"/sys/fs/cgroup/pods/p"`},
		{"a cgroup that is not absolute", `"/sys/fs/cgroup/pods/p/c1"`, `"sys/fs/cgroup/pods/p/c1"`},
		{"a cgroup by way of another", `"/sys/fs/cgroup/pods/p/c1"`, `"/sys/fs/cgroup/x/../pods/p/c1"`},
		{"all cgroups", `"path":"/pods/p/c1"`, `"path":"/"`},
		{"no path of cgroups", `"path":"/pods/p/c1"`, `"path":""`},
		{"more cgroups than there can be", `{"":`, `{` + manyCgroups() + `"":`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(written15, tt.from, tt.to, 1)
			if text == written15 {
				t.Fatal("the state is as it was")
			}
			if p, err := newPlan("c1", []byte(text)); err == nil {
				t.Errorf("planned %+v", p)
			}
		})
	}
}

func manyCgroups() string {
	var b strings.Builder
	for i := range maxHierarchies {
		b.WriteString(`"` + string(rune('A'+i)) + `":"/sys/fs/cgroup/pods/p/c1",`)
	}
	return strings.ReplaceAll(b.String(), `\`, `\\`)
}
